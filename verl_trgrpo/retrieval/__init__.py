"""A BM25 index of passages, and a server for it that speaks Search-R1's protocol; see docs/search.md.

Importing this package is cheap: tantivy, Starlette and uvicorn are imported where they are used.
"""

# Servers and clients read the bearer token from this environment variable; every user of a machine can read command lines.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"

"""Index passages by BM25 and serve them over Search-R1's protocol; see docs/search.md.

Importing this package is cheap: tantivy, Starlette and uvicorn are imported where they are used.
"""

# Servers and clients read the bearer token from this environment variable; every user of a machine can read command lines.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"

"""A BM25 index of passages, and a server for it that speaks Search-R1's protocol; see docs/search.md.

Importing this package is cheap: tantivy, Starlette and uvicorn are imported where they are used.
"""

import importlib

# Servers and clients read the bearer token from this environment variable; every user of a machine can read command lines.
TOKEN_VARIABLE = "VERL_TRGRPO_SEARCH_TOKEN"


def require(*modules: str) -> None:
    """Import modules of the extra ``search``.

    Raises:
        RuntimeError: one of them is not installed; the message says how to install it.
    """
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise RuntimeError(f'{error.name} is not installed; pip install "verl-trgrpo[search]"') from error

"""An index of passages (BM25), and a server for it that speaks Search-R1's protocol; see docs/search.md.

Importing this package is cheap: tantivy, Starlette and uvicorn are imported where they are used.
"""

import importlib


def require(*modules: str) -> None:
    """Import modules of the extra `search`; RuntimeError with the remedy where one is not installed."""
    for name in modules:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            raise RuntimeError(f'{error.name} is not installed; pip install "verl-trgrpo[search]"') from error

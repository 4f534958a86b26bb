"""``verl-trgrpo search`` with small limits, and whose searches wait until the file named by GATE exists.

GATE.log has the queries, DEADLINE the seconds for a request.
"""

import os
import sys
import time
from pathlib import Path

from verl_trgrpo.cli.main import main
from verl_trgrpo.retrieval import app
from verl_trgrpo.retrieval.index import Index

GATE = Path(os.environ["GATE"])
_search = Index.search


def search(self, queries, topk):
    with Path(f"{GATE}.log").open("a") as log:
        log.write("".join(f"{query}\n" for query in queries))
    while not GATE.exists():
        time.sleep(0.01)
    return _search(self, queries, topk)


Index.search = search
app.DEADLINE, app.THREADS = float(os.environ["DEADLINE"]), 1
app.MAX_PENDING, app.MAX_BODIES_BYTES, app.MAX_ANSWER_CHARS = 2, 100_000, 160

if __name__ == "__main__":
    sys.exit(main(["search", *sys.argv[1:]]))

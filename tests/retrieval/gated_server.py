"""``verl-trgrpo search`` with small limits, and whose searches wait until the file named by GATE exists.

GATE.log has the queries; LIMITS changes the limits, as a JSON object.
"""

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from verl_trgrpo.cli.main import main
from verl_trgrpo.retrieval import server
from verl_trgrpo.retrieval.index import Index
from verl_trgrpo.retrieval.limits import Limits

GATE = Path(os.environ["GATE"])
_search = Index.search


def search(self, queries, topk):
    with Path(f"{GATE}.log").open("a") as log:
        log.write("".join(f"{query}\n" for query in queries))
    while not GATE.exists():
        time.sleep(0.01)
    return _search(self, queries, topk)


Index.search = search
server.serve = partial(server.serve, limits=Limits(**json.loads(os.environ["LIMITS"])))

if __name__ == "__main__":
    sys.exit(main(["search", *sys.argv[1:]]))

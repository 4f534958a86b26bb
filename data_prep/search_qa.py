"""Command line: build a data set of questions with short answers, for training with search."""

import sys

from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.search_qa.build import SearchQaOptions, build

DESCRIPTION = """\
Write Search-R1's questions as DIR/train.parquet and DIR/test.parquet for veRL, with DIR/manifest.json. The tests take a
set's test split, else dev, else train. Train rows of a set that ask the same question become one row that accepts the
answers of all; the tests keep every row. --limit counts the questions of each set.

  python data_prep/search_qa.py --out data/search_qa --source hf --val-per-set 100
  python data_prep/search_qa.py --out data/nq --source FlashRAG_datasets --train-sets nq --test-sets nq bamboogle

A directory with a copy of the collection is a source as it is. --source hf has been run on the repository's layout, not
against the hub itself.
"""

if __name__ == "__main__":
    sys.exit(run_builder(SearchQaOptions, build, "data_prep/search_qa.py", DESCRIPTION))

"""Write Knights-and-Knaves puzzles as train.parquet and test.parquet for veRL, with manifest.json.

Every puzzle has exactly one solution and occurs once, also up to names and order: no test puzzle is in the train file in other
words.

examples:
  python data_prep/kk.py --out data/kk --people 3 4 5 --train 900 --test 100
  python data_prep/kk.py --out data/kk --paper
  python data_prep/kk.py --out data/kk --paper --source hf
"""

import sys

from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.knights_and_knaves.build import KkOptions, build

if __name__ == "__main__":
    sys.exit(run_builder(KkOptions, build, "data_prep/kk.py", __doc__))

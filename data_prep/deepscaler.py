"""Build DeepScaleR's train set and its test sets AIME 2024, AMC 2023, MATH-500, Minerva and OlympiadBench for veRL.

Writes DIR/train.parquet, DIR/aime2024.parquet and so on, all of one schema, with ground truths that are lists of texts of
which any is right, and DIR/manifest.json. Within a set, a problem that occurs again with the same answer is dropped; where
the answers differ, all its copies are. Rows without an answer are dropped, too. All are counted.

examples:
  from the hub (not run against the hub itself so far; where a place fails, download the sets and give --source):
    python data_prep/deepscaler.py --out data/deepscaler
  from a directory with deepscaler.json, aime.json, amc.json, math.json, minerva.json, olympiad_bench.json (or .jsonl,
  .jsonl.gz, .parquet):
    python data_prep/deepscaler.py --out data/deepscaler --source downloads/deepscaler
  two test sets, 50 rows of each, without an instruction:
    python data_prep/deepscaler.py --out data/probe --sets math500 minerva --limit 50 --instruction ''
"""

import sys

from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.math.build import DeepscalerOptions, build

if __name__ == "__main__":
    sys.exit(run_builder(DeepscalerOptions, build, "data_prep/deepscaler.py", __doc__))

"""Write puzzles of one task of reasoning-gym as train.parquet and test.parquet for veRL, with manifest.json.

The task's own verifier is the reward.

examples:
  python data_prep/reasoning_gym_task.py --task gsm_symbolic --train 2000 --test 200 --out data/gsm_symbolic
  python data_prep/reasoning_gym_task.py --task chain_sum --config min_terms=3 max_terms=5 --out data/chain_sum
"""

import sys

from verl_trgrpo.data.build import run_builder
from verl_trgrpo.tasks.reasoning_gym import ReasoningGymOptions, build

if __name__ == "__main__":
    sys.exit(run_builder(ReasoningGymOptions, build, "data_prep/reasoning_gym_task.py", __doc__))

"""Knights-and-Knaves puzzles: statements (logic), generation and wording (puzzles), data sets (rows), and the reward."""

from verl_trgrpo.tasks.task import Builder, Sampling, Scoring, Task

HUB_DATASET = "K-and-K/knights-and-knaves"

_SCORING = Scoring(f"{__name__}.reward:score_knights_and_knaves", mismatch=f"{__name__}.reward:puzzle_mismatch")
TASK = Task(
    rewards=dict.fromkeys(("kk", "kk_logic", "kk_*ppl"), _SCORING),
    foreign={HUB_DATASET: _SCORING},  # Logic-RL
    builders={"kk": Builder(f"{__name__}.rows:build_kk", "build the Parquet files of Knights-and-Knaves puzzles")},
    presets={"kk": Sampling(1, 0.0, 1.0, 4096)},
    row_keys={"puzzle": f"{__name__}.logic:puzzle_key"},
)

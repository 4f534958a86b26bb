"""Any task of reasoning-gym, with its own verifier as the reward."""

from verl_trgrpo.tasks.task import Builder, Scoring, Task

_REWARD = f"{__name__}.reward"
TASK = Task(
    rewards={
        "reasoning_gym/*": Scoring(
            f"{_REWARD}:score_reasoning_gym", f"{_REWARD}:reference_response", mismatch=f"{_REWARD}:entry_mismatch"
        )
    },
    builders={
        "reasoning-gym": Builder(
            f"{__name__}.rows:build_reasoning_gym", "build the Parquet files of a reasoning-gym task"
        )
    },
)

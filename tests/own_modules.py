"""A module of one's own in a directory with data files, and commands that are started there with nothing else set."""

import os
import subprocess
import sys
from pathlib import Path

from tests.data.checked_files import row, user, write

MODULE = """
from verl_trgrpo import register_shaping
from verl_trgrpo.tasks import Score, register_reward


@register_shaping("surprise_gate", ranges={"strength": "[0, 1]"})
def surprise_gate(probs, *, strength=0.5):
    return 1 - strength * probs


@register_reward("my_words", reference_response=lambda truth: truth)
def score(response, ground_truth, extra_info):
    right = float(response.strip() == ground_truth)
    return Score(right, acc=right)
"""
_SHAPING = "actor_rollout_ref.actor.policy_loss.shaping"
SHAPING = ("shaping=custom", f"{_SHAPING}.name=surprise_gate", f"+{_SHAPING}.strength=0.25")


def data_files(directory: Path) -> Path:
    """Write ``my_task.py``, and the train and test file of its data source."""
    (directory / "my_task.py").write_text(MODULE)
    for split, start, count in (("train", 0, 32), ("test", 32, 4)):
        rows = [
            row(i, split, data_source="my_words", prompt=user(f"Say {i}."), reward_model={"ground_truth": str(i)})
            for i in range(start, start + count)
        ]
        write(directory / f"{split}.parquet", rows)
    return directory


def program(directory: Path, *words: object, names: str = "my_task") -> subprocess.CompletedProcess[str]:
    """Run the installed program, not ``python -m``, which would add the working directory itself."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(Path(sys.executable).with_name("verl-trgrpo")), *map(str, words)],
        cwd=directory, env=environment | {"VERL_USE_EXTERNAL_MODULES": names}, capture_output=True, text=True, timeout=3600,
    )  # fmt: skip

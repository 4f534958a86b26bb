"""A task in a folder of its own, outside the package: its builder, its reward, and what ground truths cannot be."""

from pathlib import Path

FILES = {
    "__init__.py": """
from verl_trgrpo.tasks import Builder, Scoring, Task, register_task

SCORING = Scoring(f"{__name__}.reward:score", lambda truth: f"It is {truth}.", mismatch=f"{__name__}.reward:mismatch")
register_task(Task(
    rewards={"capitals": SCORING},
    foreign={"*/world-capitals": SCORING},
    builders={"capitals": Builder(f"{__name__}.rows:build", "build those of capitals")},
))
""",
    "reward.py": """
from verl_trgrpo.tasks import Score


def score(response, ground_truth, extra_info):
    return Score(1.0 if ground_truth in response else 0.1 * (len(response) % 7), acc=float(ground_truth in response))


def mismatch(prompt, ground_truth, extra_info):
    return f"the prompt names {ground_truth}; correct the row" if ground_truth in prompt else ""
""",
    "rows.py": '''
from dataclasses import dataclass
from typing import Annotated

from verl_trgrpo.data.rows import arrow_schema, build_row
from verl_trgrpo.data.write import BuilderOptions

CAPITALS = {"France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Austria": "Vienna"}


@dataclass(frozen=True, kw_only=True)
class Options(BuilderOptions):
    """Contents.

    Args:
        times: how often each country is asked for.
    """

    times: Annotated[int, "[1, inf)"] = 1


def build(options: Options, progress=None):
    """Write questions for capitals.

    examples:
      verl-trgrpo data build capitals --out data/capitals --times 4

    Returns:
        the manifest.
    """
    data_set = options.data_set("capitals", "capitals")
    if data_set.is_there():
        return None

    def rows(style):
        return [
            build_row(data_source="capitals", prompt=[{"role": "user", "content": style.format(country, number)}],
                      ability="geography", ground_truth=capital)
            for number in range(options.times) for country, capital in CAPITALS.items()
        ]

    splits = {"train": rows("What is the capital of {}? Answer {}"), "test": rows("Capital of {}, please? Number {}")}
    return data_set.write(splits, arrow_schema())
''',
}


def write_task(directory: Path) -> Path:
    """Write the package ``capitals`` into a directory, which has to be on the path of Python."""
    for name, text in FILES.items():
        (directory / "capitals").mkdir(exist_ok=True)
        (directory / "capitals" / name).write_text(text.lstrip())
    return directory

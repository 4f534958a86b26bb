"""Try the builder's wrong answers on every task of reasoning-gym, and print a row of a Markdown table for each.

    python -m studies.rewards.reasoning_gym_table
    python -m studies.rewards.reasoning_gym_table --tasks countdown puzzle24

A row has the scores of wrong answers below full marks, how many answers that are always wrong got full marks, how many of
other rows' answers, and whether `verl-trgrpo data build reasoning-gym` takes the task.
"""

import argparse
from pathlib import Path

from reasoning_gym.factory import DATASETS

from verl_trgrpo.common.text import first_line, shorten
from verl_trgrpo.tasks.reasoning_gym.rows import (
    PROBED_ROWS,
    ReasoningGymOptions,
    check_verifier,
    make_rows,
    scored,
    wrong_answers,
)


def table_row(task: str) -> str:
    """Return the row of a task."""
    try:
        rows = make_rows(ReasoningGymOptions(out=Path("unused"), task=task, train=PROBED_ROWS, test=1), "train", set())
    except Exception as error:  # of its generator, or the verifier refuses its own answer
        return f"| `{task}` | | | | refused: {shorten(first_line(error), 120)} |"
    truths = [row["reward_model"]["ground_truth"] for row in rows]
    always, others = wrong_answers(truths)
    if not always:
        return f"| `{task}` | | | | usable; states no answer, so nothing was tried |"
    scores = [[scored(probe) for probe in probes] for probes in (always, others)]
    partial = [score.score for found in scores for score in found if not score.acc]
    paid = [f"{sum(score.acc > 0 for score in found)} of {len(found)}" for found in scores]
    verdict = "usable"
    try:
        check_verifier(task, truths)
    except ValueError as error:
        verdict = f"refused: {str(error).removeprefix(f'task={task}: ').removesuffix('; choose another task')}"
    lowest, highest = (min(partial), max(partial)) if partial else (1.0, 1.0)
    scale = f"{lowest:.3g}" if lowest == highest else f"{lowest:.3g} to {highest:.3g}"
    return f"| `{task}` | {scale} | {paid[0]} | {paid[1]} | {verdict} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=sorted(DATASETS), help="default: all")
    print(
        "| task | scores of wrong answers | always wrong, paid | of other rows, paid | verdict |\n|---|---|---|---|---|"
    )
    for task in parser.parse_args().tasks:
        print(table_row(task).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()

"""Problems that occur more than once in a set."""

from collections import defaultdict
from collections.abc import Sequence

from verl_trgrpo.tasks.math.answers import answers_agree
from verl_trgrpo.tasks.math.problems import Problem

REPEATED = "repeats a problem with the same answer"
CONTRADICTED = "the same problem with another answer"


def find_repetitions(problems: Sequence[Problem]) -> dict[int, str]:
    """Return the positions of the problems to drop, each with the reason.

    Problems are the same if their texts differ in white space only. Where all copies have the first one's answer, the
    first stays. Where one has another answer, none stays: nothing says which of the answers is right, and a wrong ground
    truth punishes right responses.
    """
    groups: dict[str, list[int]] = defaultdict(list)
    for position, problem in enumerate(problems):
        groups[problem.key].append(position)
    dropped: dict[int, str] = {}
    for positions in groups.values():
        first = problems[positions[0]].answers
        if all(answers_agree(first, problems[position].answers) for position in positions):
            dropped |= dict.fromkeys(positions[1:], REPEATED)
        else:
            dropped |= dict.fromkeys(positions, CONTRADICTED)
    return dropped

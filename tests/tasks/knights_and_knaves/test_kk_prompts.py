import pytest

from verl_trgrpo.tasks.knights_and_knaves.prompts import build_prompt, format_response, format_solution, puzzle_prompt
from verl_trgrpo.tasks.knights_and_knaves.puzzles import Puzzle
from verl_trgrpo.tasks.knights_and_knaves.wording import NAMES

PUZZLE = Puzzle(
    quiz="You meet Zoey and Oliver. Zoey says ...",
    names=("Zoey", "Oliver"),
    statements=(("lying", 1), ("not", ("lying", 1))),
    solution=(True, False),
    index=0,
)


def test_format_solution():
    assert format_solution(["Zoey", "Oliver"], [True, False]) == "(1) Zoey is a knight\n(2) Oliver is a knave"


def test_format_response_puts_reasoning_and_answer_into_their_tags():
    assert format_response("Zoey lies.\nSo ...", ["Zoey"], [False]) == (
        "<think>Zoey lies.\nSo ...</think><answer>(1) Zoey is a knave</answer>"
    )


def test_format_solution_refuses_unequal_lengths():
    with pytest.raises(ValueError, match="shorter"):
        format_solution(["Zoey", "Oliver"], [True])


def test_paper_prompt_is_one_user_message_with_instruction_and_quiz():
    (message,) = build_prompt(PUZZLE.quiz, "paper")
    assert message["role"] == "user"
    assert message["content"].endswith("\n\n" + PUZZLE.quiz)
    assert all(tag in message["content"] for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    assert "<|" not in message["content"]
    assert not message["content"].rstrip().endswith("<think>")


def test_system_moves_the_instruction_into_its_own_message():
    (together,) = build_prompt(PUZZLE.quiz, "paper")
    system, user = build_prompt(PUZZLE.quiz, "paper", system=True)
    assert (system["role"], user["role"]) == ("system", "user")
    assert f"{system['content']}\n\n{user['content']}" == together["content"]


def test_the_example_answer_names_nobody():
    (message,) = build_prompt("", "paper")
    assert not [name for name in NAMES if name in message["content"]]
    example = message["content"].partition("<answer>(1)")[2].partition("</answer>")[0]
    assert "[first character] is a knight" in example


def test_short_prompt_is_the_statements_alone():
    assert puzzle_prompt(PUZZLE, "short") == [
        {"role": "user", "content": "Zoey: Oliver is a knave\nOliver: Oliver is not a knave"}
    ]
    assert puzzle_prompt(PUZZLE, "paper") == build_prompt(PUZZLE.quiz, "paper")


@pytest.mark.parametrize(
    ("style", "system", "reason"), [("long", False, "'long'; choose one of paper, short"), ("short", True, "'short'")]
)
def test_impossible_styles_are_refused(style, system, reason):
    with pytest.raises(ValueError) as caught:
        build_prompt("quiz", style, system)
    assert reason in str(caught.value)

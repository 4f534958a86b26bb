"""Prompts for question answering with search, one wording per agent loop; both share one answer format and one reward."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Loop:
    """An agent loop: the name by which veRL finds it, and the instruction that goes before the question."""

    agent_name: str
    instruction: str


_ANSWER = (
    "When you know the answer, write it inside <answer> and </answer>: only the answer itself, in as few words as "
    "possible, for example <answer>Marie Curie</answer>."
)

LOOPS = {
    "search_tags": Loop(
        "trgrpo_search",
        "Answer the question below. Begin each turn by thinking inside <think> and </think>. If a fact is missing, then "
        "write a query for the search engine inside <search> and </search>; the passages it finds are shown to you "
        f"inside <information> and </information>. You may search several times. {_ANSWER}",
    ),
    "tool_agent": Loop(
        "tool_agent",
        "Answer the question below. Begin each turn by thinking inside <think> and </think>. If a fact is missing, then "
        f"call the search tool with a query; it returns passages. You may call it several times. {_ANSWER}",
    ),
}


def build_prompt(question: str, loop: str, system: bool = False) -> list[dict[str, str]]:
    """Return the chat messages ``{"role": ..., "content": ...}`` that ask `question`.

    Args:
        question: the question, with its question mark.
        loop: a key of `LOOPS`.
        system: give the instruction as a system message of its own.
    """
    instruction, text = LOOPS[loop].instruction, f"Question: {question}"
    if system:
        return [{"role": "system", "content": instruction}, {"role": "user", "content": text}]
    return [{"role": "user", "content": f"{instruction}\n\n{text}"}]

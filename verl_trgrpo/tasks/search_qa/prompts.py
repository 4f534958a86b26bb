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


def build_prompt(question: str, loop: str) -> list[dict[str, str]]:
    """Return the chat message ``{"role": ..., "content": ...}`` that asks `question` in a `loop` of `LOOPS`."""
    return [{"role": "user", "content": f"{LOOPS[loop].instruction}\n\nQuestion: {question}"}]

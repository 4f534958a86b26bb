"""The prompt for question answering with search."""

# The name by which veRL finds the agent loop that this prompt is for.
SEARCH_AGENT = "trgrpo_search"

INSTRUCTION = (
    "Answer the question below. Begin each turn by thinking inside <think> and </think>. If a fact is missing, then write a "
    "query for the search engine inside <search> and </search>; the passages it finds are shown to you inside <information> "
    "and </information>. You may search several times. When you know the answer, write it inside <answer> and </answer>: "
    "only the answer itself, in as few words as possible, for example <answer>Marie Curie</answer>."
)


def build_prompt(question: str) -> list[dict[str, str]]:
    """Return the chat message ``{"role": ..., "content": ...}`` that asks `question`."""
    return [{"role": "user", "content": f"{INSTRUCTION}\n\nQuestion: {question}"}]

"""Responses and ground truths for the tests of the Knights-and-Knaves reward."""

ROLES = {"k": "knight", "v": "knave"}


def respond(answer: str) -> str:
    return f"<think>Zoey says so.</think>\n<answer>{answer}</answer>"


def write_truth(names: list[str], roles: str) -> str:
    """The ground truth; `roles` has a letter per person, k for a knight and v for a knave."""
    lines = zip(names, roles, strict=True)
    return "\n".join(f"({k}) {name} is a {ROLES[role]}" for k, (name, role) in enumerate(lines, start=1))

"""What an answer to a Knights-and-Knaves puzzle has said so far about who has which role."""

from collections.abc import Iterable

OTHER_ROLE = {"knight": "knave", "knave": "knight"}


class Assignment:
    """Who was said to have which role.

    Args:
        size: number of people in the puzzle; they are 0 ... size - 1.
        mentioned: the people named anywhere in the answer.
    """

    def __init__(self, size: int, mentioned: frozenset[int]) -> None:
        self.people = range(size)
        self.mentioned = mentioned
        self.named: set[int] = set()  # so far
        self.asserted: set[int] = set()
        self.roles: list[set[str]] = [set() for _ in self.people]  # asserted or implied
        self.counts: list[tuple[str, int]] = []

    def claim(self, people: Iterable[int], role: str) -> None:
        """The answer asserts the role of these people."""
        people = tuple(people)
        self.named.update(people)
        self.asserted.update(people)
        self.imply(people, role)

    def imply(self, people: Iterable[int], role: str) -> None:
        """The answer says something that is compatible with this role only."""
        for person in people:
            self.roles[person].add(role)

    def settled(self) -> list[str] | None:
        """The role per person, or None where one is missing, doubled or at odds with a count."""
        if len(self.asserted) < len(self.people) or any(len(roles) != 1 for roles in self.roles):
            return None
        settled = [next(iter(roles)) for roles in self.roles]
        return settled if all(settled.count(role) == number for role, number in self.counts) else None

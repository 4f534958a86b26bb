"""Simulate one step's rollouts: how many search servers and reward workers they keep busy; tables of docs/scale.md.

    python docs/simulate_scale.py

A response decodes a turn, waits for its search, decodes the next; when it ends, a reward worker scores it. Servers and workers
take one thing at a time, in the order of arrival. Rates are those of docs/benchmarks.md, lengths and decoding speed are
assumptions, named on the page.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from make_results import DOCS, replace_block

from verl_trgrpo.common.text import markdown_table


@dataclass(frozen=True)
class Step:
    """One step's rollouts.

    Args:
        responses: sampled at once.
        tokens: median length of a turn; lengths are log-normal.
        spread: standard deviation of their logarithms.
        longest: tokens of a turn at most.
        decoding: tokens a second of one response, the same for all.
        searches: the most searches of a response; half of those that searched go on to the next.
        servers: search servers.
        queries: searches a second of one server.
        deadline: seconds after which a search is given up.
        workers: reward workers.
        scoring: seconds of a reward, by how many responses need it (shares, which add up to 1).
    """

    responses: int
    tokens: float = 120.0
    spread: float = 0.6
    longest: int = 500
    decoding: float = 40.0
    searches: int = 4
    servers: int = 1
    queries: float = 1317.0
    deadline: float = 10.0
    workers: int = 8
    scoring: Sequence[tuple[float, float]] = ((1.0, 1 / 15_039),)


@dataclass(frozen=True)
class Outcome:
    """Seconds unless said otherwise: end of the last response, the same if searches took no time, what rewards add to it."""

    end: float
    undisturbed: float
    rewards: float
    failed: float  # share of the searches


def simulate(step: Step, seed: int = 0) -> Outcome:
    """Play one step; the same for the same seed."""
    rng = random.Random(seed)
    turns = [_turns(step, rng) for _ in range(step.responses)]
    scoring = rng.choices([s for _, s in step.scoring], [share for share, _ in step.scoring], k=step.responses)
    # (time at which the turn has been decoded, response, turn)
    decoded = [(lengths[0], response, 0) for response, lengths in enumerate(turns)]
    heapq.heapify(decoded)
    free, workers = [0.0] * step.servers, [0.0] * step.workers
    ends, searches, failed = [], 0, 0
    while decoded:
        now, response, turn = heapq.heappop(decoded)
        if turn + 1 == len(turns[response]):
            ends.append(now)
            heapq.heappush(workers, max(heapq.heappop(workers), now) + scoring[response])
            continue
        first = heapq.heappop(free)
        done = max(first, now) + 1 / step.queries
        if done - now > step.deadline:  # the client hangs up, and the server never begins
            failed, done = failed + 1, now + step.deadline
            heapq.heappush(free, first)
        else:
            heapq.heappush(free, done)
        searches += 1
        heapq.heappush(decoded, (done + turns[response][turn + 1], response, turn + 1))
    undisturbed = max(map(sum, turns))
    return Outcome(max(ends), undisturbed, max(workers) - max(ends), failed / max(1, searches))


def _turns(step: Step, rng: random.Random) -> list[float]:
    """Seconds that a response decodes in each of its turns; searches stand between them."""
    searches = 0
    while searches < step.searches and rng.random() < (1.0 if searches == 0 else 0.5):
        searches += 1
    lengths = [step.tokens * rng.lognormvariate(0, step.spread) for _ in range(searches + 1)]
    return [min(step.longest, length) / step.decoding for length in lengths]


def search_table() -> str:
    """Seconds of a step's rollouts, and the share of searches given up, by responses, rate and number of servers."""
    rows = []
    for responses in (2560, 8192):
        for queries in (1317, 200, 50):
            outcomes = [simulate(Step(responses, queries=queries, servers=servers)) for servers in (1, 2, 4, 8)]
            cells = [
                f"{found.end:.0f}" + (f", {found.failed:.0%} given up" if found.failed else "") for found in outcomes
            ]
            rows.append([f"{responses:,}", f"{queries:,}", f"{outcomes[0].undisturbed:.0f}", *cells])
    head = ["responses", "searches/s of a server", "s without searching", "s with 1 server", "2", "4", "8"]
    return markdown_table(rows, head)


def reward_table() -> str:
    """What rewards add after the last response has ended, by kind and number of workers."""
    mathematics = Step(8192, tokens=2000, spread=0.8, longest=8192, searches=0)
    # Numbers, small forms, formulas, and answers whose comparison runs into the time limit.
    kinds = {
        "Knights and Knaves": ((1.0, 1 / 51_363),),
        "mathematics, one in a hundred a formula": ((0.80, 0.16e-3), (0.19, 0.4e-3), (0.01, 6e-3)),
        "mathematics, one in ten a formula": ((0.70, 0.16e-3), (0.20, 0.4e-3), (0.10, 6e-3)),
        "the same, one in a hundred at the time limit": ((0.70, 0.16e-3), (0.20, 0.4e-3), (0.09, 6e-3), (0.01, 0.5)),
    }
    rows = []
    for name, scoring in kinds.items():
        busy = sum(share * seconds for share, seconds in scoring) * mathematics.responses
        added = [simulate(replace(mathematics, scoring=scoring, workers=workers)).rewards for workers in (1, 8, 32)]
        rows.append([name, f"{busy:.1f}", *(f"{seconds:.2f}" for seconds in added)])
    return markdown_table(rows, ["reward", "seconds of one core", "added by 1 worker (s)", "by 8", "by 32"])


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, table in (("searches", search_table()), ("rewards", reward_table())):
        print(table, end="\n\n")
        replace_block(DOCS / "scale.md", name, table)


if __name__ == "__main__":
    main()

"""Make the tables of "Which tokens, in which network?" (which_tokens.yaml) from its records; `make results` calls it."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from studies.chains.effects import Effect, corrected, difference_text, effect, fieller, p_text, unit_effect
from studies.chains.reading import SCALE, Chain, Records
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import Estimate, equivalence_p_value

# Families of Holm's correction on one chain: rules that need no oracle, and the candidates of the second question.
RULES = ("tr_grpo", "advantage_reweighting", "power", "power_reverse", "top_entropy", "other_entropy", "random_fifth")
CANDIDATES = ("covariance_place", "covariance_token", "success_rarity", "entropy_spread")
KNOWING = ("without_rare_wording", "without_rare_decisions")
PASSES = ("clip_higher_4", "cispo_4")
NOTHING = "Not recorded yet."
# Horizons of tables: network and step.
HORIZONS = (("hidden_layer", 320), ("hidden_layer", 40), ("transformer", 40), ("hidden_layer", 1280))


class Which:
    """The records, some of which may be missing; `study` is the content of which_tokens.yaml."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], study: Mapping[str, Any]) -> None:
        self.lines, self.study = lines, study
        self.counted = {
            (one["network"], (one["fillers"], one["right"]), one["arm"], one["horizon"]): one
            for one in lines
            if one["part"] == "counting"
        }

    @classmethod
    def read(cls, directory: Path) -> Which:
        """Read study and records of a directory; there may be no records."""
        study = yaml.safe_load((directory / "which_tokens.yaml").read_text())
        path = directory / "records" / "which_tokens.jsonl.xz"
        if not path.is_file():
            return cls([], study)
        with lzma.open(path, "rt") as file:
            return cls([json.loads(line) for line in file], study)

    @property
    def chains(self) -> list[Chain]:
        """Return all chains of the study, those with fillers first."""
        return [(fillers, right) for fillers in (10, 0) for right in (0.75, 0.5, 0.1)]

    def has(self, network: str, chain: Chain, horizon: int, *arms: str) -> bool:
        """Return whether arms were counted at their best rates for a horizon."""
        return all((network, chain, arm, horizon) in self.counted for arm in arms)

    def accuracies(self, network: str, chain: Chain, arm: str, horizon: int) -> np.ndarray:
        """Return the held-out accuracy of each seed at the horizon, at the arm's best rate for it."""
        line = self.counted[network, chain, arm, horizon]
        return np.array(line["held_out"][line["steps"].index(horizon)]) / SCALE

    def gain(self, network: str, chain: Chain, arm: str, horizon: int) -> np.ndarray:
        """Return an arm minus its baseline by seed; arms of four passes are compared with GRPO of four passes."""
        baseline = "grpo_4" if arm.endswith("_4") else "grpo"
        return self.accuracies(network, chain, arm, horizon) - self.accuracies(network, chain, baseline, horizon)

    def batches(self, network: str) -> list[int]:
        """Return the batch of starts of each seed."""
        calls, seeds = self.study["networks"][network]["calls"]["counting"]
        return [call for call in range(calls) for _ in range(seeds)]

    def at_edge(self, network: str, chain: Chain, arm: str, horizon: int) -> bool:
        """Return whether the best rate is the lowest or the highest that was tuned."""
        rates = self.study["networks"][network]["rates"][chain[1]]
        return self.counted[network, chain, arm, horizon]["rates"][0] in (rates[0], rates[-1])


def share_text(share: Estimate) -> str:
    """Return a share with Fieller's interval in per cent."""
    if share.low is None or share.high is None:
        return "not bounded"
    return f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"


def family(arm: str) -> tuple[str, ...]:
    """Return the arms that are corrected together with one."""
    return next((own for own in (RULES, CANDIDATES, PASSES) if arm in own), (arm,))


def compared(which: Which, network: str, chain: Chain, horizon: int) -> Iterator[tuple[str, Effect, np.ndarray, str]]:
    """Yield arm, difference from the baseline, the oracle's gain, and the corrected p as text, of the arms that are recorded."""
    gains = {
        arm: which.gain(network, chain, arm, horizon)
        for arm in (*KNOWING, *RULES, *CANDIDATES, *PASSES)
        if which.has(network, chain, horizon, arm, *(("grpo_4", "oracle_4") if arm in PASSES else ("grpo", "oracle")))
    }
    effects = {arm: effect(gain) for arm, gain in gains.items()}
    for arm, one in effects.items():
        own = family(arm)
        p = corrected({other: effects[other].p for other in own if other in effects}, len(own))
        oracle = which.gain(network, chain, "oracle_4" if arm in PASSES else "oracle", horizon)
        yield arm, one, oracle, p_text(p[arm])


def shares_table(which: Which, network: str, horizon: int) -> str:
    """Return, by chain and arm, the difference from GRPO, its share of the oracle's gain, and both units."""
    rows = []
    for chain in which.chains:
        if not which.has(network, chain, horizon, "grpo", "oracle"):
            continue
        base = which.accuracies(network, chain, "grpo", horizon)
        whole = which.gain(network, chain, "oracle", horizon)
        defined = effect(whole).p < 0.05
        head = [f"{chain[1]:g}", str(chain[0])]
        rates = {arm: which.counted[network, chain, arm, horizon]["rates"][0] for arm in ("grpo", "oracle")}
        edge = "*" if which.at_edge(network, chain, "oracle", horizon) else ""
        batches = unit_effect(whole, which.batches(network))
        rows.append([*head, f"GRPO {base.mean():.3f}; oracle", f"{rates['oracle']:g}{edge}", difference_text(effect(whole)),
                     "100%", p_text(effect(whole).p), difference_text(batches)])  # fmt: skip
        for arm, one, oracle, p in compared(which, network, chain, horizon):
            rate = which.counted[network, chain, arm, horizon]["rates"][0]
            edge = "*" if which.at_edge(network, chain, arm, horizon) else ""
            share = share_text(fieller(one.values, oracle)) if defined else "not defined"
            batches = unit_effect(one.values, which.batches(network))
            rows.append([*head, arm, f"{rate:g}{edge}", difference_text(one), share, p, difference_text(batches)])
    head = ["right at the start", "fillers", "arm", "best rate", f"minus GRPO, {horizon} steps", "share of the oracle's gain",
            "p, corrected", "batches as units"]  # fmt: skip
    return markdown_table(rows, head) if rows else NOTHING


def pooled_gain(
    which: Which, arm: str, chains: Sequence[Chain], horizon: int, network: str = "hidden_layer"
) -> np.ndarray:
    """Return the mean over chains of each seed's difference."""
    return np.mean([which.gain(network, chain, arm, horizon) for chain in chains], 0)


def one_sided(values: np.ndarray, sign: int) -> float:
    """Return the p of the one-sided t test that the mean of `values` has this sign."""
    found = effect(values)
    return found.p / 2 if np.sign(found.estimate.mean) == sign else 1 - found.p / 2


Figure = Callable[[], str]


def share_test(
    which: Which, arm: str, chains: Sequence[Chain], horizon: int, share: float, sign: int, tests: int
) -> str:
    """Return an arm's share, with the p that it is above or below a declared share, times the number of `tests`."""
    own, whole = (pooled_gain(which, one, chains, horizon) for one in (arm, "oracle"))
    p = min(1.0, one_sided(own - share * whole, sign) * tests)
    return f"{share_text(fieller(own, whole))}, {p_text(p)} ({tests} tests)"


def share_of(which: Which, arm: str, oracle: str, chains: Sequence[Chain]) -> str:
    """Return an arm's share of an oracle's gain at 320 steps."""
    return share_text(fieller(*(pooled_gain(which, one, chains, 320) for one in (arm, oracle))))


def gain_test(which: Which, arm: str, chains: Sequence[Chain], tests: int) -> str:
    """Return an arm's difference from the baseline at 320 steps, with p times the number of `tests`."""
    one = effect(pooled_gain(which, arm, chains, 320))
    return f"{difference_text(one, min(1.0, tests * one.p))} ({tests} tests)"


def declared_figures(which: Which) -> Iterator[tuple[str, str, str, Sequence[Chain], int, Figure]]:
    """Yield name and text of each hypothesis, arm, chains and horizon that it needs, and what makes its figure."""
    fillers, plain = ([(n, right) for right in (0.75, 0.5, 0.1)] for n in (10, 0))
    likely = plain[:2]
    for arm in RULES[:4]:
        yield ("H1", f"{arm} recovers less than 10 %, ten fillers, 320 steps", arm, fillers, 320,
               partial(share_test, which, arm, fillers, 320, 0.1, -1, 4))  # fmt: skip
    yield ("H2", "tr_grpo recovers more than 30 %, no fillers, 40 steps", "tr_grpo", likely, 40,
           partial(share_test, which, "tr_grpo", likely, 40, 0.3, 1, 1))  # fmt: skip
    yield ("H3", "top_entropy recovers 0 to 20 %, ten fillers, 320 steps", "top_entropy", fillers, 320,
           partial(share_of, which, "top_entropy", "oracle", fillers))  # fmt: skip
    for arm in RULES[5:]:
        yield "H3", f"{arm} is below grpo", arm, fillers, 320, partial(gain_test, which, arm, fillers, 1)
    for arm, side, chains in ((KNOWING[0], "above", fillers), (KNOWING[1], "below", fillers + plain)):
        for chain in chains:
            about = f"{arm} is {side} grpo, {chain[1]:g} with {chain[0]} fillers, 320 steps"
            yield "H4", about, arm, [chain], 320, partial(gain_test, which, arm, [chain], 9)
    for arm in PASSES:
        yield ("H6", f"{arm} recovers less than 20 % of what oracle_4 gains, ten fillers", arm, fillers, 320,
               partial(share_of, which, arm, "oracle_4", fillers))  # fmt: skip
    for arm in CANDIDATES:
        yield ("second question", f"{arm} recovers more than a third, ten fillers, 320 steps", arm, fillers, 320,
               partial(share_test, which, arm, fillers, 320, 1 / 3, 1, 4))  # fmt: skip


def hypotheses_table(which: Which) -> str:
    """Return the figures of each declared hypothesis, or how many lines are missing."""
    rows = []
    for name, about, arm, chains, horizon, figure in declared_figures(which):
        needed = ("grpo_4", "oracle_4", arm) if arm in PASSES else ("grpo", "oracle", arm)
        missing = [one for chain in chains for one in needed if not which.has("hidden_layer", chain, horizon, one)]
        rows.append([name, about, f"open: {len(missing)} lines are missing" if missing else figure()])
    about = "the oracle gains less than half as much in the transformer, 0.5 with ten fillers, 40 steps"
    rows.append(["H5", about, architecture(which)])
    return markdown_table(rows, ["", "hypothesis", "figure"])


def architecture(which: Which) -> str:
    """Return the oracle's gain and TR-GRPO's in both networks, with the declared tests."""
    from scipy import stats

    chain, networks = (10, 0.5), ("hidden_layer", "transformer")
    if not all(which.has(network, chain, 40, "grpo", "oracle", "tr_grpo") for network in networks):
        return "open"
    page, other = (which.gain(network, chain, "oracle", 40) for network in networks)
    lead = which.gain("transformer", chain, "tr_grpo", 40)
    p = stats.ttest_ind(other, page / 2, equal_var=False, alternative="less").pvalue
    equal = equivalence_p_value(lead.tolist(), which.study["margin"]) or 0.0
    return (
        f"page's network {difference_text(effect(page))}, transformer {difference_text(effect(other))}, {p_text(float(p))}; "
        f"tr_grpo in the transformer {difference_text(effect(lead))}, equal within 0.01 {p_text(equal)}"
    )


def state_table(which: Which) -> str:
    """Return how many of the declared lines are recorded, by part of the order."""
    rows = []
    for number, part in enumerate(which.study["order"], 1):
        chains, arms = [tuple(chain) for chain in part["chains"]], part["arms"]
        done = sum(which.has(part["network"], chain, part["counted"], arm) for chain in chains for arm in arms)
        about = ", ".join(f"{right:g}/{fillers}" for fillers, right in chains)
        rows.append(
            [
                str(number),
                part["network"],
                about,
                ", ".join(arms),
                str(part["counted"]),
                f"{done} of {len(chains) * len(arms)}",
            ]
        )
    return markdown_table(rows, ["", "network", "right at the start / fillers", "arms", "steps", "counted"])


def diagnosis_table(which: Which, diagnosis: Mapping[str, Any], older: Records) -> str:
    """Return what the diagnosis of `preview` says of six chains, and the signs at 320 steps of rules that damp rare tokens."""
    rows, signs = [], Counter[str]()
    for one in diagnosis["chains"]:
        chain = (one["fillers"], one["right"])
        ends = [older.difference(chain, (arm, "grpo"), 320) for arm in ("tr_grpo", "power")]
        recorded = which.has("hidden_layer", chain, 320, "grpo", KNOWING[0])
        found = [*ends, effect(which.gain("hidden_layer", chain, KNOWING[0], 320)) if recorded else None]
        cells = []
        for end in found:
            if end is None:
                cells.append("not recorded")
                continue
            low, high = end.estimate.low or 0.0, end.estimate.high or 0.0
            verdict = "open" if low <= 0 <= high else "right" if end.estimate.mean * one["damping"] > 0 else "wrong"
            signs[verdict] += 1
            cells.append(f"{difference_text(end)} {verdict}")
        rows.append([f"{chain[1]:g}", str(chain[0]), f"{one['rare']:.1%}", f"{one['at_decisions']:.0%}",
                     f"{one['decide']:.0%} of {one['probes']}", "+" if one["damping"] > 0 else "-", *cells])  # fmt: skip
    head = ["right at the start", "fillers", "rare tokens", "of these at decisions (truth)", "decide (diagnosis)",
            "predicted sign", "tr_grpo", "power", KNOWING[0]]  # fmt: skip
    total = ", ".join(f"{count} {name}" for name, count in sorted(signs.items()))
    return f"{markdown_table(rows, head)}\n\nSigns: {total}."


TABLES: dict[str, Callable[[Which], str]] = {"hypotheses": hypotheses_table, "state": state_table}
TABLES |= {f"{network}_{step}": partial(shares_table, network=network, horizon=step) for network, step in HORIZONS}

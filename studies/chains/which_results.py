"""Make the tables of "Which tokens, in which network?" (which_tokens.yaml) from its records; `make results` calls it."""

from __future__ import annotations

import json
import lzma
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from studies.chains.effects import Effect, corrected, difference_text, effect, fieller, p_text, unit_effect
from studies.chains.reading import SCALE, Chain
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import Estimate, equivalence_p_value

# Families of Holm's correction on one chain: rules that need no oracle, and the candidates of the second question.
RULES = ("tr_grpo", "advantage_reweighting", "power", "power_reverse", "top_entropy", "other_entropy", "random_fifth")
CANDIDATES = ("covariance_place", "covariance_token", "success_rarity", "entropy_spread")
KNOWING = ("without_rare_wording", "without_rare_decisions")
PASSES = ("clip_higher_4", "cispo_4")
# Tests in each hypothesis that is corrected as a family.
FAMILIES = {"H1": 4, "H4": 9, "H6": 4, "second question": 4}
# A share of the oracle's gain is defined, and a hypothesis holds, where p is smaller.
LEVEL_OF_GAIN = 0.05
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

    def rate_text(self, network: str, chain: Chain, arm: str, horizon: int) -> str:
        """Return the best rate, with a star where it is the lowest or the highest that was tuned."""
        rates, rate = (
            self.study["networks"][network]["rates"][chain[1]],
            self.counted[network, chain, arm, horizon]["rates"][0],
        )
        return f"{rate:g}{'*' if rate in (rates[0], rates[-1]) else ''}"


def share_text(share: Estimate) -> str:
    """Return a share with Fieller's interval in per cent."""
    if share.low is None or share.high is None:
        return "not bounded"
    return f"{share.mean:.0%} [{share.low:.0%}, {share.high:.0%}]"


def family(arm: str) -> tuple[str, ...]:
    """Return the arms that are corrected together with one."""
    return next((own for own in (RULES, CANDIDATES, PASSES) if arm in own), (arm,))


def compared(
    which: Which, network: str, chains: Sequence[Chain], horizon: int
) -> Iterator[tuple[str, Effect, np.ndarray, str]]:
    """Yield arm, difference from the baseline, the oracle's gain, and the corrected p as text.

    All are of the mean over chains; arms that are not recorded on each of them are left out.
    """

    def recorded(*arms: str) -> bool:
        return all(which.has(network, chain, horizon, *arms) for chain in chains)

    effects = {
        arm: effect(pooled_gain(which, arm, chains, horizon, network))
        for arm in (*KNOWING, *RULES, *CANDIDATES, *PASSES)
        if recorded(arm, *(("grpo_4", "oracle_4") if arm in PASSES else ("grpo", "oracle")))
    }
    for arm, one in effects.items():
        own = family(arm)
        p = corrected({other: effects[other].p for other in own if other in effects}, len(own))
        oracle = "oracle_4" if arm in PASSES else "oracle"
        yield arm, one, pooled_gain(which, oracle, chains, horizon, network), p_text(p[arm])


def shares_table(which: Which, network: str, horizon: int) -> str:
    """Return, by chain and over chains of one kind, each arm's difference from GRPO and share of the oracle's gain."""
    alone = [[chain] for chain in which.chains]
    kinds = [[chain for chain in which.chains if chain[0] == fillers] for fillers in (10, 0)]
    rows = [row for chains in alone + kinds for row in _shares_rows(which, network, chains, horizon)]
    head = ["right at the start", "fillers", "arm", "best rate", f"minus GRPO, {horizon} steps", "share of the oracle's gain",
            "p, corrected", "batches as units"]  # fmt: skip
    return markdown_table(rows, head) if rows else NOTHING


def _shares_rows(which: Which, network: str, chains: Sequence[Chain], horizon: int) -> Iterator[list[str]]:
    if not all(which.has(network, chain, horizon, "grpo", "oracle") for chain in chains):
        return
    head = [f"{chains[0][1]:g}" if len(chains) == 1 else "mean of three", str(chains[0][0])]
    level = effect(np.mean([which.accuracies(network, chain, "grpo", horizon) for chain in chains], 0)).estimate
    whole = effect(pooled_gain(which, "oracle", chains, horizon, network))
    defined = whole.p < LEVEL_OF_GAIN

    def cells(arm: str, name: str, found: Effect, share: str, p: str) -> list[str]:
        rate = which.rate_text(network, chains[0], arm, horizon) if len(chains) == 1 else ""
        batches = unit_effect(found.values, which.batches(network))
        return [*head, name, rate, difference_text(found), share, p, difference_text(batches)]

    rate = which.rate_text(network, chains[0], "grpo", horizon) if len(chains) == 1 else ""
    yield [*head, "grpo", rate, f"level {level.mean:.3f} [{level.low:.3f}, {level.high:.3f}]", "", "", ""]
    share = "100%" if defined else "not defined"
    yield cells("oracle", "oracle", whole, share, p_text(whole.p))
    for arm, one, oracle, p in compared(which, network, chains, horizon):
        yield cells(arm, arm, one, share_text(fieller(one.values, oracle)) if defined else share, p)


def glance_table(which: Which) -> str:
    """Return each rule's difference from GRPO over the three chains of a kind, by fillers, network and step."""
    horizons = sorted(HORIZONS)

    def cells(arm: str, fillers: int) -> Iterator[str]:
        chains = [chain for chain in which.chains if chain[0] == fillers]
        for network, step in horizons:
            known = all(which.has(network, chain, step, "grpo", arm) for chain in chains)
            yield difference_text(effect(pooled_gain(which, arm, chains, step, network))) if known else ""

    arms = ("oracle", *KNOWING, *RULES, "covariance_place")
    rows = [[str(fillers), arm, *cells(arm, fillers)] for fillers in (10, 0) for arm in arms]
    head = ["fillers", "arm", *(f"{network}, {step} steps" for network, step in horizons)]
    return markdown_table([row for row in rows if any(row[2:])], head)


def pooled_gain(
    which: Which, arm: str, chains: Sequence[Chain], horizon: int, network: str = "hidden_layer"
) -> np.ndarray:
    """Return the mean over chains of each seed's difference."""
    return np.mean([which.gain(network, chain, arm, horizon) for chain in chains], 0)


class Figure(NamedTuple):
    """A figure of a hypothesis: its text, and p of the test that it holds, before correction, or a verdict without one."""

    text: str
    p: float | None = None
    verdict: str = ""


class Declared(NamedTuple):
    """A figure that was declared: hypothesis, its claim, arm and chains that it needs, horizon, and what makes it."""

    name: str
    about: str
    arm: str
    chains: Sequence[Chain]
    horizon: int
    make: Callable[[np.ndarray, np.ndarray], Figure]


def _share_test(own: np.ndarray, whole: np.ndarray, share: float, side: str) -> Figure:
    """Return a share of the oracle's gain and the one-sided test that it is above ("greater") or below ("less") `share`."""
    from scipy import stats

    p = stats.ttest_1samp(own - share * whole, 0.0, alternative=side).pvalue
    return Figure(share_text(fieller(own, whole)), float(p))


def _within(own: np.ndarray, whole: np.ndarray, low: float, high: float) -> Figure:
    """Return a share of the oracle's gain, and whether its interval is within bounds."""
    share = fieller(own, whole)
    holds = share.low is not None and share.high is not None and low <= share.low and share.high <= high
    return Figure(share_text(share), verdict=_verdict(holds))


def _gain_test(own: np.ndarray, whole: np.ndarray, sign: int) -> Figure:
    """Return a difference from the baseline and its two-sided p; 1 where the difference has the other sign."""
    found = effect(own)
    return Figure(difference_text(found), found.p if found.estimate.mean * sign > 0 else 1.0)


def _not_below(own: np.ndarray, whole: np.ndarray) -> Figure:
    """Return a difference from the baseline; "not below" is refuted where the two-sided test shows that it is below."""
    found = effect(own)
    refuted = found.p < LEVEL_OF_GAIN and found.estimate.mean < 0
    return Figure(difference_text(found), verdict="does not hold" if refuted else "holds")


def declared_figures() -> Iterator[Declared]:
    """Yield all figures of the hypotheses that compare arms of the page's network."""
    fillers, plain = ([(n, right) for right in (0.75, 0.5, 0.1)] for n in (10, 0))

    def at_end(name: str, about: str, arm: str, make: Callable[[np.ndarray, np.ndarray], Figure]) -> Declared:
        return Declared(name, f"{arm} {about}, ten fillers, 320 steps", arm, fillers, 320, make)

    for arm in RULES[:4]:
        yield at_end("H1", "recovers less than 10 %", arm, partial(_share_test, share=0.1, side="less"))
    about = "tr_grpo recovers more than 30 %, no fillers, 0.75 and 0.5, 40 steps"
    yield Declared("H2", about, "tr_grpo", plain[:2], 40, partial(_share_test, share=0.3, side="greater"))
    yield at_end("H3", "recovers 0 to 20 %", "top_entropy", partial(_within, low=0.0, high=0.2))
    for arm in RULES[5:]:
        yield at_end("H3", "is below grpo", arm, partial(_gain_test, sign=-1))
    for arm, side, sign, chains in ((KNOWING[0], "above", 1, fillers), (KNOWING[1], "below", -1, fillers + plain)):
        for chain in chains:
            about = f"{arm} is {side} grpo, {chain[1]:g} with {chain[0]} fillers, 320 steps"
            yield Declared("H4", about, arm, [chain], 320, partial(_gain_test, sign=sign))
    for arm in PASSES:
        yield at_end("H6", "is not below grpo_4", arm, _not_below)
        yield at_end("H6", "recovers less than 20 % of what oracle_4 gains", arm,
                     partial(_share_test, share=0.2, side="less"))  # fmt: skip
    for arm in CANDIDATES:
        yield at_end("second question", "recovers more than a third", arm,
                     partial(_share_test, share=1 / 3, side="greater"))  # fmt: skip


def hypotheses_table(which: Which) -> str:
    """Return figure and verdict of each declared hypothesis, or how many lines are missing."""
    declared = [*declared_figures()]
    figures = {place: _figure(which, one) for place, one in enumerate(declared)}
    p_values: dict[str, dict[int, float]] = {}
    for place, figure in figures.items():
        if isinstance(figure, Figure) and figure.p is not None:
            p_values.setdefault(declared[place].name, {})[place] = figure.p
    rows = []
    for place, figure in figures.items():
        name, about = declared[place][:2]
        if not isinstance(figure, Figure):
            rows.append([name, about, f"{figure} lines are missing", "", "open"])
        elif figure.p is None:
            rows.append([name, about, figure.text, "", figure.verdict])
        else:
            own = p_values[name]
            p = corrected(own, FAMILIES[name])[place] if name in FAMILIES else figure.p
            rows.append([name, about, figure.text, p_text(p), _verdict(p < LEVEL_OF_GAIN)])
    return markdown_table([*rows, *architecture(which)], ["", "hypothesis", "figure", "p, corrected", ""])


def _figure(which: Which, one: Declared) -> Figure | int:
    """Return the figure of a hypothesis, or how many lines it lacks."""
    baseline, oracle = ("grpo_4", "oracle_4") if one.arm in PASSES else ("grpo", "oracle")
    has = partial(which.has, "hidden_layer")
    missing = sum(not has(chain, one.horizon, arm) for chain in one.chains for arm in (baseline, oracle, one.arm))
    if missing:
        return missing
    return one.make(*(pooled_gain(which, arm, one.chains, one.horizon) for arm in (one.arm, oracle)))


def _verdict(holds: bool) -> str:
    return "holds" if holds else "not shown"


def architecture(which: Which) -> Iterator[list[str]]:
    """Yield the rows of H5: the oracle's gain in both networks, and TR-GRPO's in the transformer."""
    from scipy import stats

    chain, networks = (10, 0.5), ("hidden_layer", "transformer")
    about = "the oracle gains less than half as much in the transformer, 0.5 with ten fillers, 40 steps"
    if not all(which.has(network, chain, 40, "grpo", "oracle", "tr_grpo") for network in networks):
        yield ["H5", about, "", "", "open"]
        return
    page, other = (which.gain(network, chain, "oracle", 40) for network in networks)
    p = float(stats.ttest_ind(other, page / 2, equal_var=False, alternative="less").pvalue)
    text = f"{difference_text(effect(other))} against {difference_text(effect(page))}"
    yield ["H5", about, text, p_text(p), _verdict(p < LEVEL_OF_GAIN)]
    lead = which.gain("transformer", chain, "tr_grpo", 40)
    equal = equivalence_p_value(lead.tolist(), which.study["margin"]) or 0.0
    yield ["H5", "tr_grpo equals grpo within 0.01 there", difference_text(effect(lead)), p_text(equal),
           _verdict(equal < LEVEL_OF_GAIN)]  # fmt: skip


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


def diagnosis_table(which: Which, diagnosis: Mapping[str, Any]) -> str:
    """Return what the diagnosis of `preview` says of six chains, and the signs at 320 steps of rules that damp rare tokens."""
    rows, signs, arms = [], Counter[str](), ("tr_grpo", "power", KNOWING[0])
    for one in diagnosis["chains"]:
        chain, cells = (one["fillers"], one["right"]), []
        for arm in arms:
            if not which.has("hidden_layer", chain, 320, "grpo", arm):
                cells.append("not recorded")
                continue
            end = effect(which.gain("hidden_layer", chain, arm, 320))
            verdict = (
                "open" if end.p >= LEVEL_OF_GAIN else "right" if end.estimate.mean * one["damping"] > 0 else "wrong"
            )
            signs[verdict] += 1
            cells.append(f"{difference_text(end)} {verdict}")
        rows.append([f"{chain[1]:g}", str(chain[0]), f"{one['rare']:.1%}", f"{one['at_decisions']:.0%}",
                     f"{one['decide']:.0%} of {one['probes']}", "+" if one["damping"] > 0 else "-", *cells])  # fmt: skip
    head = ["right at the start", "fillers", "rare tokens", "of these at decisions (truth)", "decide (diagnosis)",
            "predicted sign", *arms]  # fmt: skip
    total = ", ".join(f"{count} {name}" for name, count in sorted(signs.items()))
    return f"{markdown_table(rows, head)}\n\nSigns: {total}."


TABLES: dict[str, Callable[[Which], str]] = {
    "glance": glance_table,
    "hypotheses": hypotheses_table,
    "state": state_table,
}
TABLES |= {f"{network}_{step}": partial(shares_table, network=network, horizon=step) for network, step in HORIZONS}

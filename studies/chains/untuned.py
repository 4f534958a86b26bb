"""Make the tables of the studies of chains that tune no rate (pairs.yaml, rare.yaml); `make results` calls it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from studies.chains.effects import Effect, corrected, difference_text, effect, failures_text, p_text, unit_effect
from studies.chains.reading import CHAIN_HEAD, Chain, Records, chain_text
from verl_trgrpo.common.text import markdown_table
from verl_trgrpo.compare.statistics import equivalence_p_value

# Fewer seeds that pass a train accuracy with all rates give no figure.
FEWEST = 20
NOTHING = "Not recorded yet."


def pairs_table(records: Records, part: str) -> str:
    """Return what becomes of prompts with a pair that is never trained: means over the rates of each seed; `part` names them."""
    arms, end, chains = records.arms, records.steps[-1], records.chains(*records.arms)
    if not chains:
        return NOTHING
    start = {chain: records.over_rates(chain, 0, part)[arms[1]] for chain in chains}
    trained = {chain: records.over_rates(chain, end, part)[arms[1]] for chain in chains}
    margin, ends = records.study["margin"], {chain: records.rates_effect(chain, end, part) for chain in chains}
    # Differences of all seeds; nan of those that do not pass a train accuracy at all rates.
    columns = {
        f"GRPO, {end} steps minus start": {c: trained[c] - start[c] for c in chains},
        "TR-GRPO minus GRPO, 40": {c: np.array(records.rates_effect(c, 40, part).values) for c in chains},
        f"TR-GRPO minus GRPO, {end}": {c: np.array(ends[c].values) for c in chains},
        f"minus GRPO at a lower rate, {end}": {c: end_differences(records, c, part) for c in chains},
    }
    for threshold in records.study["thresholds"]:
        for name, lower in ((f"TR-GRPO minus GRPO, train {threshold:g}", False),
                            (f"minus GRPO at a lower rate, train {threshold:g}", True)):  # fmt: skip
            columns[name] = {c: passing_differences(records, c, part, threshold, lower) for c in chains}
    effects = {name: {c: whole_effect(values) for c, values in found.items()} for name, found in columns.items()}
    p = {
        name: corrected({c: one.p for c, one in found.items() if one}, len(records.planned))
        for name, found in effects.items()
    }
    equal = corrected(
        {c: equivalence_p_value(one.values, margin) or 0.0 for c, one in ends.items()}, len(records.planned)
    )
    rows = []
    for chain in chains:
        cells = [
            difference_text(one, p[name][chain]) if (one := found[chain]) else "-" for name, found in effects.items()
        ]
        levels = [f"{start[chain].mean():.3f}", f"{trained[chain].mean():.3f}"]
        rows.append([*chain_text(chain), *levels, *cells, p_text(equal[chain])])
    overall = [whole_effect(np.mean([*found.values()], 0)) for found in columns.values()]
    means = [difference_text(one, one.p) if one else "-" for one in overall]
    rows.append(["mean of these", "", "", "", *means, ""])
    head = [*CHAIN_HEAD, "start", f"GRPO, {end} steps", *columns, f"equal within {margin:g}, {end}"]
    return markdown_table(rows, head)


def whole_effect(differences: np.ndarray) -> Effect | None:
    """Return the effect on the seeds without nan; None if they are few."""
    whole = differences[~np.isnan(differences)]
    return effect(whole) if len(whole) >= FEWEST else None


def rate_pairs(records: Records, chain: Chain, lower: bool) -> list[tuple[float, float]]:
    """Return rates of the primary arm and of the baseline: the same, or the baseline's one rung lower."""
    rates = records.study["rates"][chain[1]]
    return [*zip(rates[1:], rates, strict=False)] if lower else [(rate, rate) for rate in rates]


def end_differences(records: Records, chain: Chain, part: str) -> np.ndarray:
    """Return the primary arm minus the baseline at lower rates, after the last step."""
    (own, base), end = records.arms, records.steps[-1]
    differences = [records.accuracies(chain, own, end, rate, part) - records.accuracies(chain, base, end, other, part)
                   for rate, other in rate_pairs(records, chain, True)]  # fmt: skip
    return np.mean(differences, 0)


def passing_differences(records: Records, chain: Chain, part: str, threshold: float, lower: bool) -> np.ndarray:
    """Return the difference where a train accuracy is first passed; nan for seeds that do not pass at all rates."""
    own, base = records.arms
    differences = [records.passing(chain, own, rate, threshold, part) - records.passing(chain, base, other, threshold, part)
                   for rate, other in rate_pairs(records, chain, lower)]  # fmt: skip
    return np.mean(differences, 0)


def groups(records: Records) -> dict[float, list[Chain]]:
    """Return the chains of each right decision of which all have been counted."""
    chains = records.chains(*records.arms)
    found = {right: [chain for chain in chains if chain[1] == right] for right in records.study["right"]}
    return {right: own for right, own in found.items() if len(own) == len(records.study["fillers"])}


def means(records: Records, chains: list[Chain], step: int, of: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the accuracy of each seed with both arms, means over chains and rates."""
    found = [records.over_rates(chain, step, of) for chain in chains]
    own, base = (np.mean([one[arm] for one in found], 0) for arm in records.arms)
    return own, base


def rare_table(records: Records) -> str:
    """Return differences and ratios of failures at each step, means over the chains with one right decision."""
    rows = []
    for right, chains in groups(records).items():
        for step in records.steps:
            cells = []
            for of in ("held_out", "train"):
                own, base = means(records, chains, step, of)
                cells += [
                    f"{base.mean():.3f}",
                    difference_text(one := effect(own - base), one.p),
                    failures_text(own, base),
                ]
            rows.append([f"{right:g}", str(step), *cells])
    head = [
        f"{what}, {of}" for of in ("held out", "train") for what in ("GRPO", "TR-GRPO minus GRPO", "ratio of failures")
    ]
    return markdown_table(rows, ["right at the start", "steps", *head]) if rows else NOTHING


# The declared tests of rare.yaml: right decision and step.
DECLARED = {"H1": (0.1, 1280), "H2": (0.25, 1280), "H3": (0.1, 320)}


def declared_effects(records: Records) -> Iterator[tuple[float, int, str, Effect, float]]:
    """Yield right decision, step, prompts, difference and p with Holm's correction over both kinds of prompts."""
    found = groups(records)
    for right, step in DECLARED.values():
        if right in found:
            effects = {}
            for of in ("held_out", "train"):
                own, base = means(records, found[right], step, of)
                effects[of] = effect(own - base)
            p = corrected({of: one.p for of, one in effects.items()}, 2)
            yield from ((right, step, of.replace("_", " "), one, p[of]) for of, one in effects.items())


def rare_tests(records: Records) -> str:
    """Return the declared tests, with those of equality and ratios of failures."""
    rows, margin, names = [], records.study["margin"], {test: name for name, test in DECLARED.items()}
    found = [*declared_effects(records)]
    for place, (right, step, prompts, one, p) in enumerate(found):
        both = [equivalence_p_value(other.values, margin) or 0.0 for *_, other, _ in found[place // 2 * 2 :][:2]]
        equal = corrected(dict(enumerate(both)), 2)[place % 2]
        own, base = (
            1 - accuracy for accuracy in means(records, groups(records)[right], step, prompts.replace(" ", "_"))
        )
        # The ratio is in (0.8, 1.25) where own - 0.8 base is above 0 and own - 1.25 base below.
        ratio = max(effect_side(own - 0.8 * base, 1), effect_side(own - 1.25 * base, -1))
        cells = [difference_text(one, p), p_text(equal), failures_text(1 - own, 1 - base), p_text(ratio)]
        rows.append([names[right, step], f"{right:g}", str(step), prompts, *cells])
    head = ["", "right at the start", "steps", "prompts", "TR-GRPO minus GRPO", f"equal within {margin:g}",
            "ratio of failures", "within 0.8 to 1.25"]  # fmt: skip
    return markdown_table(rows, head) if rows else NOTHING


def rare_units(records: Records) -> str:
    """Return differences after the last step by chain beside their mean, with seeds and batches as units; not corrected."""
    rows, end = [], records.steps[-1]
    for right, chains in groups(records).items():
        for of in ("held_out", "train"):
            found = {f"{chain[0]} fillers": np.subtract(*means(records, [chain], end, of)) for chain in chains}
            every = {"mean": np.mean([*found.values()], 0), **found}
            if len(chains) == 2:
                (first, own), (second, other) = found.items()
                every[f"{second} minus {first}"] = other - own
            for name, values in every.items():
                texts = [difference_text(one, one.p) for one in (effect(values), unit_effect(values, records.batches))]
                rows.append([f"{right:g}", of.replace("_", " "), name, *texts])
    head = ["right at the start", "prompts", "chains", "TR-GRPO minus GRPO, seeds as units",
            f"{len(set(records.batches))} batches as units"]  # fmt: skip
    return markdown_table(rows, head) if rows else NOTHING


def effect_side(values: np.ndarray, sign: int) -> float:
    """Return the p-value of the one-sided t test that the mean of `values` has this sign."""
    found = effect(values)
    return found.p / 2 if np.sign(found.estimate.mean) == sign else 1 - found.p / 2

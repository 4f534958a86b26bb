"""Figures of the chains on the pages, recomputed from the raw records by another program: numpy and the t distribution alone."""

import itertools
import json
import lzma
import re

import numpy as np
import pytest
from scipy import stats

from tests.scripts import ROOT

PAGE = ROOT / "docs" / "results" / "chains.md"
RECORDS = ROOT / "studies" / "chains" / "records"
STEPS = [10, 20, 40, 80, 160, 320]
LIKELY, RARE = [(0.75, 0), (0.75, 10), (0.5, 0), (0.5, 10)], [(0.1, 0), (0.1, 10)]


class Raw:
    """Accuracies of the counting seeds, (steps, seeds), by right, fillers, arm and rate; means of the tuning seeds."""

    def __init__(self, name, steps):
        path = RECORDS / f"{name}.jsonl.xz"
        self.steps, self.counted, self.means = steps, {}, {}
        for line in map(json.loads, lzma.decompress(path.read_bytes()).splitlines()):
            key = (line["right"], line["fillers"], line["arm"])
            if line["part"] == "counting":
                self.counted[(*key, line["rates"][0])] = line
            else:
                held_out = [[np.mean(one) for one in row] for row in line["held_out"]]
                self.means[key] = (line["rates"], dict(zip(steps, held_out, strict=True)))
        rights = {key[0] for key in self.counted}
        self.all_rates = {
            right: sorted({key[3] for key in self.counted if key[::2] == (right, "grpo")}) for right in rights
        }

    def at(self, chain, arm, rate, step, of="held_out"):
        return np.array(self.counted[(*chain, arm, rate)][of][self.steps.index(step)]) / 1e4

    def passing(self, chain, arm, rate, threshold, of):
        line = self.counted[(*chain, arm, rate)]["passed"][threshold]
        return np.where(np.array(line["step"]) > 0, np.array(line[of]) / 1e4, np.nan)

    def best(self, chain, arm, step):
        rates, means = self.means[(*chain, arm)]
        return rates[int(np.argmax(means[step]))]

    def declared(self, chain, arm, step, of="held_out"):
        return self.at(chain, arm, self.best(chain, arm, step), step, of)

    def top(self, chain, arm, step, of="held_out"):
        """Through three points, by Newton's divided differences; kept between the outer two, and without a top at the best."""
        rates, means = self.means[(*chain, arm)]
        i = int(np.clip(np.argmax(means[step]), 1, len(rates) - 2))
        x, y = np.log(rates[i - 1 : i + 2]), means[step][i - 1 : i + 2]
        first = (y[1] - y[0]) / (x[1] - x[0])
        bend = ((y[2] - y[1]) / (x[2] - x[1]) - first) / (x[2] - x[0])
        at = np.clip((x[0] + x[1]) / 2 - first / (2 * bend), x[0], x[2]) if bend < 0 else x[int(np.argmax(y))]
        seeds = np.stack([self.at(chain, arm, rate, step, of) for rate in rates[i - 1 : i + 2]])
        return np.array([np.polyval(np.polyfit(x - at, own, 2), 0.0) for own in seeds.T])

    def mean(self, chain, arm, step, of="held_out"):
        return np.mean([self.at(chain, arm, rate, step, of) for rate in self.all_rates[chain[0]]], 0)

    def over(self, chain, step, of="held_out"):
        return self.mean(chain, "tr_grpo", step, of) - self.mean(chain, "grpo", step, of)


@pytest.fixture(scope="module")
def raw():
    return Raw("convergence", STEPS)


def table(name, page=PAGE):
    """The rows of a made table, as lists of cells."""
    text = re.search(rf"<!-- {name}: begin -->(.*?)<!-- {name}: end -->", page.read_text(), re.DOTALL)[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.strip().splitlines()]
    return rows[2:]


def agrees(cell, values, p=True):
    """Whether a cell says mean, 95 % interval and, uncorrected, p of the t test of `values`."""
    n, mean, error = len(values), np.mean(values), np.std(values, ddof=1) / np.sqrt(len(values))
    half = stats.t.ppf(0.975, n - 1) * error
    said = [float(one) for one in re.findall(r"[+-]?\d+\.\d+(?:e-\d+)?", cell.split(" p")[0])]
    assert said == pytest.approx([mean, mean - half, mean + half], abs=5.1e-4), cell
    if p and " p" in cell:
        found, text = 2 * stats.t.sf(abs(mean / error), n - 1), cell.split(" p")[1]
        assert found < 1e-6 if text.startswith("<") else float(text[1:]) == pytest.approx(found, rel=0.06), cell
    return True


@pytest.mark.parametrize(("name", "step"), [("early", 40), ("end", 320)])
def test_differences_at_the_horizons(raw, name, step):
    rows = table(f"convergence.{name}")
    assert [(float(row[0]), int(row[1])) for row in rows] == LIKELY + RARE
    for chain, row in zip(LIKELY + RARE, rows, strict=True):
        own, base = (raw.declared(chain, arm, step) for arm in ("tr_grpo", "grpo"))
        assert float(row[2]) == pytest.approx(base.mean(), abs=5.1e-4)
        assert agrees(row[3], own - base, p=False)
        assert agrees(row[4], raw.top(chain, "tr_grpo", step) - raw.top(chain, "grpo", step))
        assert agrees(row[5], raw.over(chain, step)) and agrees(row[6], raw.over(chain, step, "train"))
        if step == 320:
            ratio = [float(one) for one in re.findall(r"\d\.\d+", row[9])]
            draws = np.random.default_rng(0).integers(200, size=(4000, 200))
            ratios = (1 - own)[draws].mean(1) / (1 - base)[draws].mean(1)
            assert ratio[0] == pytest.approx((1 - own).mean() / (1 - base).mean(), abs=5.1e-4)
            assert ratio[1:] == pytest.approx(np.quantile(ratios, [0.025, 0.975]), abs=0.015), (
                "the bootstrap's interval"
            )


def test_means_over_groups_of_chains(raw):
    ways = {
        "best of five": lambda c, s, of: raw.declared(c, "tr_grpo", s, of) - raw.declared(c, "grpo", s, of),
        "top of": lambda c, s, of: raw.top(c, "tr_grpo", s, of) - raw.top(c, "grpo", s, of),
"best rate for 320": lambda c, s, of: raw.at(c, "tr_grpo", raw.best(c, "grpo", 320), s, of)
        - raw.at(c, "grpo", raw.best(c, "grpo", 320), s, of),
        "mean over": raw.over,
        "falls to 0": lambda c, s, of: raw.declared(c, "tr_grpo_decay", s, of) - raw.declared(c, "grpo_decay", s, of),
        "centered": lambda c, s, of: raw.declared(c, "tr_grpo_centered", s, of) - raw.declared(c, "grpo", s, of),
        "power": lambda c, s, of: raw.declared(c, "power", s, of) - raw.declared(c, "grpo", s, of),
    }  # fmt: skip
    rows = table("convergence.groups")
    assert len(rows) == 2 * len(ways)
    for row in rows:
        (way,) = (of for name, of in ways.items() if name in row[1])
        for cell, (group, of) in zip(
            row[2:], [(g, of) for g in (LIKELY, RARE) for of in ("held_out", "train")], strict=True
        ):
            assert agrees(cell, np.mean([way(chain, int(row[0]), of) for chain in group], 0))


def test_the_summary_has_the_means_over_rates(raw):
    rows = [row for row in table("summary", ROOT / "docs" / "results.md") if "200" in row[3]]
    wanted = [
        (LIKELY, 40, "held_out"),
        (RARE, 40, "held_out"),
        (LIKELY, 320, "held_out"),
        (RARE, 320, "held_out"),
        (RARE, 320, "train"),
    ]
    for row, (group, step, of) in zip(rows, wanted, strict=False):
        assert row[1].startswith(f"{step} steps") and agrees(row[2], np.mean([raw.over(c, step, of) for c in group], 0))


def test_gaps_at_the_same_and_at_lower_rates(raw):
    def figure(chain, arm, rates, threshold):
        found = []
        for rate in rates:
            one = raw.counted[(*chain, arm, rate)]["passed"][threshold]
            step, train, held_out = (np.array(one[name], dtype=float) for name in ("step", "train", "held_out"))
            found.append(np.where(step > 0, [(train - held_out) / 1e4, step], np.nan))
        return np.mean(found, 0)

    rows = iter(table("convergence.gaps"))
    for threshold in ("0.6", "0.8"):
        kept = []
        for chain in LIKELY:
            rates = raw.all_rates[chain[0]]
            base = figure(chain, "grpo", rates[1:4], threshold)
            kept.append(
                [
                    figure(chain, "tr_grpo", rates[1:4], threshold) - base,
                    figure(chain, "grpo", rates[:3], threshold) - base,
                ]
            )
        for changes in (*kept, np.mean(kept, 0)):
            row = next(rows)
            whole = np.array(changes)[:, :, ~np.isnan(changes).any((0, 1))]
            assert agrees(row[4], whole[0, 0]) and agrees(row[6], whole[1, 0])
            assert [float(row[5]), float(row[7])] == pytest.approx(whole[:, 1].mean(-1), abs=0.051)


def test_what_a_gain_is_worth(raw):
    for row in table("convergence.worth"):
        (own, base), step = row[0].split(" minus "), int(row[1])
        for chain, cell in zip(LIKELY + RARE, row[2:], strict=True):
            sides = [
                raw.top(chain, arm, step) if arm in ("grpo", "tr_grpo") else raw.declared(chain, arm, step)
                for arm in (own, base)
            ]
            assert agrees(cell, sides[0] - sides[1])


@pytest.mark.parametrize("part", ["new_first", "new_answer"])
def test_pairs_that_are_never_trained(part):
    raw = Raw("pairs", [0, 10, 40, 80, 160, 320])

    def shifted(chain, figure):
        rates = raw.all_rates[chain[0]]
        return np.mean([figure("tr_grpo", own) - figure("grpo", lower) for lower, own in itertools.pairwise(rates)], 0)

    *rows, last = table(f"pairs.{part}")
    kept = []
    for row in rows:
        chain = (float(row[0]), int(row[1]))
        start, end = (raw.mean(chain, "grpo", step, part) for step in (0, 320))
        assert [float(row[2]), float(row[3])] == pytest.approx([start.mean(), end.mean()], abs=5.1e-4)
        found = [end - start, raw.over(chain, 40, part), raw.over(chain, 320, part),
                 shifted(chain, lambda arm, rate, c=chain: raw.at(c, arm, rate, 320, part))]  # fmt: skip
        assert all(agrees(cell, values, p=False) for cell, values in zip(row[4:], found, strict=False))
        rates = raw.all_rates[chain[0]]
        figure = lambda arm, rate, c=chain: raw.passing(c, arm, rate, "0.8", part)  # noqa: E731
        same = np.mean([figure("tr_grpo", rate) - figure("grpo", rate) for rate in rates], 0)
        lower = shifted(chain, figure)
        for cell, values in ((row[8], same), (row[9], lower)):
            assert cell == "-" or agrees(cell, values[~np.isnan(values)], p=False)
        kept.append(found)
    assert all(agrees(cell, values) for cell, values in zip(last[4:], np.mean(kept, 0), strict=False))


def test_a_rare_right_decision():
    raw = Raw("rare", [40, 80, 160, 320, 640, 1280])
    rows = [(row[1:3], {row[3].replace(" ", "_"): row[4::2]}) for row in table("rare.tests")]
    rows += [(row[:2], {"held_out": row[3:5], "train": row[6:8]}) for row in table("rare.path")]
    for (right, step), cells in rows:
        for of, (difference, ratio, *_) in cells.items():
            chains = [(float(right), fillers) for fillers in (0, 10)]
            own, base = (np.mean([raw.mean(c, arm, int(step), of) for c in chains], 0) for arm in ("tr_grpo", "grpo"))
            assert agrees(difference, own - base, p=len(cells) > 1)
            assert float(ratio.split()[0]) == pytest.approx((1 - own).mean() / (1 - base).mean(), abs=5.1e-4)

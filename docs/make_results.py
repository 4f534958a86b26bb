"""Make the tables and pictures of docs/results.md and docs/results/*.md from the records in studies/*/records.

examples, from a checkout; tables and pictures need torch, numpy, scipy, matplotlib, PyYAML and pydantic alone:
  make results                                              all tables and pictures
  python docs/make_results.py --pack runs/compare/small_lm  take over the records of a study's finished runs first
  python docs/make_results.py --analyzed small_lm_gradients start=DIR grpo=DIR
                                                            take over results of `studies.gradients.token_gradients`
  python docs/make_results.py --analyzed small_lm_sharpness grpo/seed-0=DIR tr_grpo/seed-0=DIR
                                                            those of `studies.gradients.sharpness`, one model each

Records: NAME.tar.xz has, for each run of studies/comparisons/NAME.yaml, run.json (settings, commit, versions, machine), all
metrics of all steps, and the responses of its validations with their scores. convergence.jsonl.xz and chains.jsonl are those of
studies/chains, update_effects.jsonl that of studies/update_effects/run.py. NAME.json has the results of a measurement, or, for
the studies of tiny models, the figures of each run.

A page has words, and between "<!-- NAME: begin -->" and "<!-- NAME: end -->" what is made: NAME is a study's, or STUDY.TABLE.
"""

from __future__ import annotations

import argparse
import functools
import io
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from studies.chains import convergence, untuned, which_results
from studies.chains import map as chains_map
from studies.chains.effects import Effect, difference_text, effect, p_text, pooled, unit_effect
from studies.chains.reading import Records
from studies.gradients import results as gradients_results
from studies.pages import filled
from studies.update_effects import results as update_effects_results
from verl_trgrpo.common.files import replaced_file, write_json, write_text
from verl_trgrpo.common.text import count_of, markdown_table
from verl_trgrpo.compare import budget
from verl_trgrpo.compare.arms import Run, group_arms, read_runs
from verl_trgrpo.compare.comparison import OUTCOME, Comparison, compare_figures, compare_runs
from verl_trgrpo.compare.statistics import equivalence_p_value, paired_p_value
from verl_trgrpo.compare.tables import comparison_tables, interval_text, markdown_tables
from verl_trgrpo.compare.tables import difference_text as runs_text
from verl_trgrpo.runs.metrics import GRAD_NORM, TRAIN_ACCURACY, series
from verl_trgrpo.runs.records import read_record

DOCS = Path(__file__).parent
STUDIES = DOCS.parent / "studies"
# Studies of tiny models, which share a table and a page: name and what differs.
TINY = {
    "kk_tiny": "two and three people",
    "kk4_tiny": "four people",
    "kk_tiny_verl": "two and three people, through veRL",
    "R1": "four passes over each batch",
    "R2": "five times the learning rate",
    "R3": "four passes, wide clip",
    "R4": "temperature 1.3",
    "R5": "shorter warm start",
}
# Studies of SmolLM2-135M on word problems, of which tr_grpo is compared with grpo in all.
WORD_PROBLEMS = ("small_lm", "small_lm_rate", "small_lm_verl", "small_lm_sgd")
Figures = Mapping[str, Mapping[int, Mapping[str, float]]]


def pack(directory: Path, out: Path) -> int:
    """Write the records of the finished runs below `directory` to an archive, and return their number.

    Raises:
        ValueError: there are none.
    """
    records = {path.parent: read_record(path.parent) for path in sorted(directory.glob("runs/*/*/run.json"))}
    finished = {run: record for run, record in records.items() if record.finished}
    if not finished:
        raise ValueError(f"{directory} has no finished runs; name the directory of a study")
    with replaced_file(out) as temporary, tarfile.open(temporary, "w:xz", preset=9) as archive:
        for run, record in finished.items():
            # The command follows from the settings, and names directories of one machine.
            kept = {name: value for name, value in record.content().items() if name != "command"}
            contents = {run / "run.json": (json.dumps(kept, indent=2) + "\n").encode()}
            for pattern in ("metrics-*.jsonl", "validation/*.jsonl"):
                contents |= {path: path.read_bytes() for path in sorted(run.glob(pattern))}
            for path, content in contents.items():
                entry = tarfile.TarInfo(str(path.relative_to(directory)))  # without times: equal records, equal bytes
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return len(finished)


def take_over(name: str, places: dict[str, Path]) -> None:
    """Copy the results of a measurement for each checkpoint into one file."""
    file = "sharpness.json" if name.endswith("sharpness") else "gradients.json"
    content = {checkpoint: json.loads((place / file).read_text()) for checkpoint, place in places.items()}
    for found in content.values():  # without directories of one machine
        found["options"] = {
            key: value for key, value in found["options"].items() if key not in ("model", "data", "out")
        }
    write_json(STUDIES / "gradients" / "records" / f"{name}.json", content)


def declaration(path: Path) -> dict[str, Any]:
    """Return what a study's file says."""
    return yaml.safe_load(path.read_text())


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Unpack the records of a study into a directory, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as directory, tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
        yield Path(directory)


@functools.cache
def recorded(name: str) -> tuple[list[Run], Figures, Comparison]:
    """Return the runs of a study from its archive, their figures, and their comparison."""
    study = declaration(STUDIES / "comparisons" / f"{name}.yaml")
    with unpacked(STUDIES / "comparisons" / "records" / f"{name}.tar.xz") as directory:
        runs = [run for run in read_runs([str(directory / "runs")]) if run.record.arm in study["arms"]]
        runs.sort(key=lambda run: ([*study["arms"]].index(run.label), run.seed))
        arms = group_arms(runs, study["baseline"])
        ordered = {arm: arms[arm] for arm in study["arms"] if arm in arms}
        metric = study.get("accuracy") or None
        return runs, *compare_runs(ordered, study["baseline"], metric, study.get("primary", ""), study.get("margin"))


def pairs(name: str, arm: str = "tr_grpo", baseline: str = "grpo") -> dict[int, float]:
    """Return the differences of final accuracies of a study by seed."""
    _, figures, _ = recorded(name)
    own, base = figures[arm], figures[baseline]
    return {seed: own[seed][OUTCOME] - base[seed][OUTCOME] for seed in own if seed in base}


def comparison(name: str) -> str:
    """Return origin, tables and hypotheses of a study of runs."""
    study = declaration(STUDIES / "comparisons" / f"{name}.yaml")
    runs, figures, found = recorded(name)
    done = min(len(figures[arm]) for arm in (study["baseline"], study["primary"])) if study.get("primary") else 0
    planned = len(study["seeds"])
    so_far = f"{done} of {planned} planned seeds. " if study.get("primary") and done < planned else ""
    tables = comparison_tables(found, study["baseline"], study.get("primary", ""), study.get("margin"))
    return "\n\n".join(
        filter(
            None, (so_far + origin(run.record.content() for run in runs) + ".", markdown_tables(tables), stated(study))
        )
    )


def training_table(name: str = "small_lm_categories") -> str:
    """Return the accuracy of the responses trained on, and how often gradients are clipped at norm 1, by arm."""
    runs, rows = recorded(name)[0], []
    accuracies = {(run.label, run.seed): [value for _, value in series(run.steps, TRAIN_ACCURACY)] for run in runs}
    for arm in dict.fromkeys(run.label for run in runs):
        norms = [norm for run in runs if run.label == arm for _, norm in series(run.steps, GRAD_NORM)]
        cells = []
        for last in (0, 20):
            own, base = ({seed: fmean(values[-last:]) for (label, seed), values in accuracies.items() if label == one}
                         for one in (arm, "grpo"))  # fmt: skip
            change = effect([own[seed] - base[seed] for seed in own]) if arm != "grpo" else None
            cells += [f"{fmean(own.values()):.3f}", difference_text(change, change.p) if change else "-"]
        rows.append([arm, *cells, f"{fmean(norm > 1 for norm in norms):.0%}", f"{max(norms):.1f}"])
    head = [
        "arm",
        "all steps",
        "minus grpo",
        "last 20 steps",
        "minus grpo",
        "steps with a norm above 1",
        "largest norm",
    ]
    return markdown_table(rows, head)


def tiny_comparison(name: str) -> tuple[dict[str, Any], Comparison]:
    """Return the file of figures of a study of a tiny model, and its comparison."""
    content = json.loads((STUDIES / "comparisons" / "records" / f"{name}.json").read_text())
    runs = {arm: {int(seed): run for seed, run in runs.items()} for arm, runs in content["runs"].items()}
    return content, compare_figures(runs, content["baseline"], content["primary"])


def tiny_models() -> str:
    """Return the table of all studies of tiny models."""
    rows = []
    for name, about in TINY.items():
        content, found = tiny_comparison(name)
        own, base = found[content["primary"]][OUTCOME], found[content["baseline"]][OUTCOME]
        assert own.difference
        rows.append([name, about, content["commit"], str(own.runs), interval_text(base.estimate),
                     interval_text(own.estimate), runs_text(own.difference)])  # fmt: skip
    return markdown_table(rows, ["study", "what differs", "commit", "seeds", "grpo", "tr_grpo", "difference"])


def outcome(name: str) -> Comparison | None:
    """Return the comparison of a study, None without records."""
    if name in TINY:
        return tiny_comparison(name)[1]
    return recorded(name)[2] if (STUDIES / "comparisons" / "records" / f"{name}.tar.xz").is_file() else None


def measurement(name: str) -> str:
    """Return the table of a measurement of checkpoints."""
    content = json.loads((STUDIES / "gradients" / "records" / f"{name}.json").read_text())
    table = (
        gradients_results.efficiency_table(content, outcome)
        if name == "efficiency"
        else gradients_results.table(name, content)
    )
    return f"{origin(content.values())}.\n\n{table}"


def stated(study: Mapping[str, Any]) -> str:
    """Return a study's hypotheses as a Markdown list."""
    hypotheses = study.get("hypotheses") or ()
    return "\n".join(("Stated before the runs:", "", *(f"- {text}" for text in hypotheses))) if hypotheses else ""


def declared(records: Records) -> str:
    """Return the origin of records of chains, and their study's hypotheses."""
    return f"{origin(records.lines.values())}. {stated(records.study)}" if records.lines else stated(records.study)


def origin(records: Iterable[Mapping[str, Any]]) -> str:
    """Return commits, versions and machines of records."""
    records = list(records)
    commits = {str(one["commit"])[:7] + (" with changes that were not committed" if one.get("uncommitted_changes") else "")
               for one in records}  # fmt: skip
    places = sorted({f"torch {record['versions']['torch']}, {record['machine']}" for record in records})
    return ", ".join([f"Commit {' and '.join(sorted(commits))}", *places])


def chain_records(study: str, records: str = "") -> Records:
    """Return the records of a study of chains; none if it has not been run."""
    path = STUDIES / "chains" / "records" / f"{records or study}.jsonl.xz"
    declared = declaration(STUDIES / "chains" / f"{study}.yaml")
    return Records.read(path, declared) if path.is_file() else Records([], declared)


def convergence_records() -> Records:
    """Return the records of chains of 320 steps."""
    return chain_records("study", "convergence")


def map_records() -> tuple[dict[chains_map.Key, dict[str, Any]], dict[str, Any]]:
    """Return the records of the first 40 steps of chains, and the study."""
    lines = chains_map.read_lines(STUDIES / "chains" / "records" / "chains.jsonl")
    return lines, declaration(STUDIES / "chains" / "map.yaml")


def effects_records() -> tuple[dict[str, Any], list[str]]:
    """Return the records of effects of one update by setting, and the arms."""
    study = declaration(STUDIES / "update_effects" / "study.yaml")
    runs = update_effects_results.read_runs(STUDIES / "update_effects" / "records" / "update_effects.jsonl")
    return {name: runs[name] for name in study["runs"] if name in runs}, study["arms"]


def summary() -> str:
    """Return the table of all settings: whether to switch TR-GRPO on."""
    lines, study = map_records()
    records, rows = convergence_records(), []

    def row(where: str, what: str, found: Effect, seeds: str, sure: str = "", units: Sequence[Any] = ()) -> None:
        seen = p_text(found.p) if found.p < 0.05 else f"not seen ({p_text(found.p)})"
        larger = difference_text(one := unit_effect(found.values, units), one.p) if units else "-"
        rows.append([where, what, difference_text(found), seeds, sure or seen, larger])

    def chains(step: int, likely: bool, of: str = "held_out") -> Effect:
        own = [chain for chain in records.chains(*records.arms) if (chain[1] >= 0.5) == likely]
        return pooled([records.rates_effect(chain, step, of) for chain in own])

    where, (early, end) = "chains of tokens, exact accuracy", records.study["horizons"]
    about = f"{early} steps; right decision likely at the start (0.5, 0.75)"
    row(where, about, chains(early, True), "4 chains x 200", units=records.batches)
    about = f"{early} steps; right decision rare (0.1)"
    row(where, about, chains(early, False), "2 chains x 200", units=records.batches)
    several = chains_map.by_chain(chains_map.outcomes(lines, study), "adam", "tr_grpo", 4).values()
    row(where, f"{early} steps; four passes over each batch", pooled([one.effect for one in several]), "4 chains x 100")
    level = equivalence_p_value((likely := chains(end, True)).values, records.study["margin"]) or 0.0
    sure = f"equal within 0.01: {p_text(level)}"
    row(where, f"{end} steps; right decision likely", likely, "4 chains x 200", sure, records.batches)
    for of in ("held_out", "train"):
        about = f"{end} steps; right decision rare, {of.replace('_', ' ')}"
        row(where, about, chains(end, False, of), "2 chains x 200", units=records.batches)
    rare = chain_records("rare")
    for right, step, prompts, found, p in untuned.declared_effects(rare):
        if step > end:
            about = f"{step} steps; right decision {right:g}, {prompts}"
            row(where, about, found, "2 chains x 400", f"declared, corrected {p_text(p)}", rare.batches)
    unseen = chain_records("pairs")
    if (own := unseen.chains(*unseen.arms)) == unseen.planned:
        found = pooled([unseen.rates_effect(chain, unseen.steps[-1], "new_first") for chain in own])
        about = f"{unseen.steps[-1]} steps; pairs of digits never trained"
        row(where, about, found, f"{len(own)} chains x 200", units=unseen.batches)
    categories = effect([*pairs("small_lm_categories").values()])
    row("SmolLM2-135M, words of a kind", "60 steps, 0.35 to 0.8", categories, "8")
    seeds, values = zip(*(one for name in WORD_PROBLEMS for one in pairs(name).items()), strict=True)
    where = "SmolLM2-135M, word problems"
    about = f"{len(values)} pairs of {len(set(seeds))} seeds"
    row(where, "12 steps, to 0.3; four settings together, pooled afterwards", effect(values), about, units=seeds)
    largest = effect([*pairs("small_lm").values()])
    flips = paired_p_value(largest.values) or 1.0
    lower = f"lower with {sum(one < 0 for one in largest.values)} of {len(largest.values)}"
    sure = f"declared, {p_text(flips)} by sign flips, {lower}; as the largest of four {p_text(min(1.0, 4 * flips))}"
    row(where, "of these, the study with its own declared test", largest, "6", sure)
    published = effect([*pairs("small_lm", "tr_grpo_published").values()])
    row(
        where,
        "published form: weights inside the clip, with a KL loss that GRPO lacks",
        published,
        "6",
        "**do not use it**",
    )
    head = ["where", "what", "accuracy, TR-GRPO minus GRPO", "seeds", "how sure", "batches or seeds as units"]
    return markdown_table(rows, head)


def budgets() -> str:
    """Return what one, three and six runs of each arm can choose and show, by the spread between runs."""
    needed = budget.needed()
    rows = []
    for spread in (0.7, 1.0, budget.SPREAD, 3.0):
        cells = [
            f"{budget.chosen_share(n, spread=spread):.0%}, {budget.shown_share(n, spread=spread):.0%}"
            for n in budget.BUDGETS
        ]
        rows.append([f"{spread:g}", *cells, str(budget.needed(spread=spread))])
    head = ["spread between runs", *(f"{n} run{'s' * (n > 1)} each" for n in budget.BUDGETS), "pairs for a claim"]
    return f"{markdown_table(rows, head)}\n\nWith a spread of {budget.SPREAD:g} a claim needs {needed} pairs of runs."


def makers() -> dict[str, Callable[[], str]]:
    """Return what makes the text of each place on the pages."""
    lines, study = map_records()
    records, (runs, arms) = convergence_records(), effects_records()
    places: dict[str, Callable[[], str]] = {"summary": summary, "budgets": budgets, "tiny_models": tiny_models}
    places["small_lm_categories.training"] = training_table
    for table in ("groups", "path", "passing", "gaps", "rates", "worth"):
        places[f"convergence.{table}"] = functools.partial(getattr(convergence, f"{table}_table"), records)
    for name, step in zip(("early", "end"), records.study["horizons"], strict=True):
        places[f"convergence.{name}"] = functools.partial(convergence.horizon_table, records, step)
    pairs_records, rare = chain_records("pairs"), chain_records("rare")
    for part in ("new_first", "new_answer"):
        places[f"pairs.{part}"] = functools.partial(untuned.pairs_table, pairs_records, part)
    places |= {
        "rare.tests": functools.partial(untuned.rare_tests, rare),
        "rare.units": functools.partial(untuned.rare_units, rare),
        "rare.path": functools.partial(untuned.rare_table, rare),
    }
    which = which_results.Which.read(STUDIES / "chains")
    places |= {f"which.{name}": functools.partial(make, which) for name, make in which_results.TABLES.items()}
    places["which.stated"] = lambda: (
        f"{origin(which.lines)}. {stated(which.study)}" if which.lines else stated(which.study)
    )
    diagnosis = json.loads((STUDIES / "chains" / "records" / "diagnosis.json").read_text())
    places["which.diagnosis"] = functools.partial(which_results.diagnosis_table, which, diagnosis)
    for name, one in (("convergence", records), ("pairs", pairs_records), ("rare", rare)):
        places[f"{name}.stated"] = functools.partial(declared, one)
    for name in ("map", "pooled", "power", "sgd", "controls", "off_policy", "prediction"):
        places[f"map.{name}"] = functools.partial(lambda one: chains_map.sections(lines, study)[one], name)
    places["map.stated"] = lambda: f"{origin(lines.values())}. {stated(study)}"
    for name in update_effects_results.TABLES:
        places[f"update_effects.{name}"] = functools.partial(update_effects_results.TABLES[name], runs, arms)
    places["update_effects.origin"] = lambda: origin(one for records in runs.values() for one in records) + "."
    for path in sorted(STUDIES.glob("*/records/*.tar.xz")):
        name = path.name.split(".")[0]
        places[name] = functools.partial(comparison, name)
    for path in sorted((STUDIES / "gradients" / "records").glob("*.json")):
        places[path.stem] = functools.partial(measurement, path.stem)
    return places


def fill(page: Path, places: Mapping[str, Callable[[], str]]) -> None:
    """Replace what is between the markers of a page.

    Raises:
        ValueError: a marker has a name that no records have.
    """

    text = page.read_text()
    for name in re.findall(r"<!-- (\S+): begin -->", text):
        if name not in places:
            raise ValueError(f"{page}: nothing is recorded for {name}; choose from {', '.join(places)}")
        text = filled(text, name, places[name]())
    write_text(page, text)


def make_tables() -> None:
    """Fill the pages."""
    places = makers()
    for page in (DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))):
        fill(page, places)


def make_pictures() -> None:
    """Draw the pictures of the pages."""
    convergence.plot_curves(convergence_records(), DOCS / "results" / "chains.svg")
    lines, study = map_records()
    chains_map.plot_map(chains_map.outcomes(lines, study), DOCS / "results" / "chains_map.svg")
    update_effects_results.plot_effects(*effects_records(), DOCS / "results" / "update_effects.svg")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pack", type=Path, metavar="DIR", help="take over the records of this study first")
    parser.add_argument(
        "--analyzed", nargs="+", metavar=("NAME", "CHECKPOINT=DIR"), help="take over results of a measurement first"
    )
    options = parser.parse_args()
    if options.pack:
        name = options.pack.resolve().name
        count = pack(options.pack, STUDIES / "comparisons" / "records" / f"{name}.tar.xz")
        print(f"{name}: {count_of(count, 'run')} taken over")
    if options.analyzed:
        name, *given = options.analyzed
        found = [pair.partition("=") for pair in given]
        if not found or not all(place for _, _, place in found):
            parser.error("--analyzed takes a name, such as small_lm_sharpness, and CHECKPOINT=DIR")
        take_over(name, {checkpoint: Path(place) for checkpoint, _, place in found})
    make_tables()
    make_pictures()


if __name__ == "__main__":
    main()

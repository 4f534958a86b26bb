"""Make the tables and pictures of docs/results.md and docs/results/*.md from the records in studies/*/records.

examples, from a checkout:
  make results                                              everything
  python docs/make_results.py small_lm                      one study
  python docs/make_results.py --pack runs/compare/small_lm  take over the records of a study's finished runs
  python docs/make_results.py small_lm_gradients --analyzed start=runs/analyze/start grpo=runs/analyze/grpo
                                                            take over results of `verl-trgrpo analyze`
  python docs/make_results.py small_lm_sharpness --analyzed grpo/seed-0=DIR tr_grpo/seed-0=DIR
                                                            those of `studies.gradients.run sharpness`, one model each
  python docs/make_results.py efficiency --analyzed tiny_puzzles=DIR small_lm_categories=DIR
                                                            those of `studies.gradients.run efficiency`, one start model each

Records: NAME.tar.xz has, for each run of studies/comparisons/NAME.yaml, run.json (settings, commit, versions, machine), all
metrics of all steps, and the responses of its validations with their scores. chains.jsonl is that of studies/chains/run.py,
update_effects.jsonl that of studies/update_effects/run.py. NAME.json has the results of a measurement, or, for the studies of
tiny models, the figures of each run.

Results: docs/results.md gets one table per study between "<!-- NAME: begin -->" and "<!-- NAME: end -->"; docs/results/NAME.md
gets all tables and pictures.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from studies.chains import results as chains_results
from studies.gradients import results as gradients_results
from studies.update_effects import results as update_effects_results
from verl_trgrpo.common.files import replaced_file, write_bytes, write_json, write_text
from verl_trgrpo.common.text import count_of, markdown_table
from verl_trgrpo.compare.arms import group_arms, last_common_step, read_runs
from verl_trgrpo.compare.comparison import OUTCOME, Comparison, compare
from verl_trgrpo.compare.plots import plot_arms
from verl_trgrpo.compare.study import Study, read_study
from verl_trgrpo.compare.tables import (
    arm_label,
    as_markdown,
    comparison_tables,
    difference_text,
    interval_text,
    study_comparison,
    words,
)
from verl_trgrpo.runs.run_directory import read_record

DOCS = Path(__file__).parent
STUDIES = DOCS.parent / "studies"
# Plots on the pages of studies.
PLOTS = ("accuracy", "gradient_norm", "weights", "gradient_share")
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
TINY_PAGE = "tiny_models"
CHAINS = "chains"
EFFECTS = "update_effects"
EFFICIENCY = "efficiency"


def pack(directory: Path, out: Path) -> int:
    """Write the records of the finished runs below `directory` to an archive, and return their number.

    Raises:
        ValueError: there are none.
    """
    records = {path.parent: read_record(path.parent) for path in sorted(directory.glob("runs/*/*/run.json"))}
    finished = {run: record for run, record in records.items() if record["finished"]}
    if not finished:
        raise ValueError(f"{directory} has no finished runs; name the directory of a study")
    with replaced_file(out) as temporary, tarfile.open(temporary, "w:xz", preset=9) as archive:
        for run, record in finished.items():
            # The command follows from the settings, and names directories of one machine.
            kept = {name: value for name, value in record.items() if name != "command"}
            contents = {run / "run.json": (json.dumps(kept, indent=2) + "\n").encode()}
            for pattern in ("metrics-*.jsonl", "validation/*.jsonl"):
                contents |= {path: path.read_bytes() for path in sorted(run.glob(pattern))}
            for path, content in contents.items():
                entry = tarfile.TarInfo(str(path.relative_to(directory)))  # without times: equal records, equal bytes
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return len(finished)


def take_over(name: str, places: dict[str, Path]) -> None:
    """Copy the results of a measurement for each checkpoint into one file; efficiencies of other models stay in it."""
    kinds = [kind for kind in ("sharpness", EFFICIENCY) if name.endswith(kind)]
    file = f"{kinds[0] if kinds else 'gradients'}.json"
    content = {checkpoint: json.loads((place / file).read_text()) for checkpoint, place in places.items()}
    for found in content.values():  # without directories of one machine
        found["options"] = {
            key: value for key, value in found["options"].items() if key not in ("model", "data", "out")
        }
    path = STUDIES / "gradients" / "records" / f"{name}.json"
    if name == EFFICIENCY and path.is_file():
        content = json.loads(path.read_text()) | content
    write_json(path, content)


def make(name: str, page: Path) -> None:
    """Make the table of one study on `page`, and the study's own page with its pictures."""
    if name in TINY or name == TINY_PAGE:
        make_tiny(page)
    elif name == CHAINS:
        make_chains(page)
    elif name == EFFECTS:
        make_update_effects(page)
    elif name == EFFICIENCY:
        make_efficiency(page)
    elif (path := records(name)).suffix == ".xz":
        with unpacked(path) as directory:
            make_study(name, directory, page)
    else:
        content = json.loads(path.read_text())
        table = gradients_results.table(name, content)
        replace_block(page, name, f"{origin(content.values())}.\n\n{table}")


def records(name: str) -> Path:
    """Return the file with the records of a study.

    Raises:
        ValueError: there is none.
    """
    found = [*STUDIES.glob(f"*/records/{name}.*")]
    if not found:
        raise ValueError(f"{name} has no records in {STUDIES}/*/records; choose from {', '.join(studies())}")
    return found[0]


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Unpack the records of a study into a directory, for as long as the block runs."""
    with tempfile.TemporaryDirectory() as directory, tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
        yield Path(directory)


def recorded_study(name: str, arms: Container[str]) -> Study:
    """Return the declaration of a study with those of its arms that have records."""
    path = STUDIES / "comparisons" / f"{name}.yaml"
    return read_study(path, arms=[arm for arm in read_study(path).arms if arm in arms])


def tiny_comparison(content: Mapping[str, Any]) -> Comparison:
    """Return the comparison of a study of a tiny model from its file of figures."""
    runs = {arm: {int(seed): run for seed, run in runs.items()} for arm, runs in content["runs"].items()}
    return compare(runs, content["baseline"], content["primary"])


def make_study(name: str, directory: Path, page: Path) -> None:
    """Make the table, the page and the pictures of a study whose records were unpacked to `directory`."""
    records = [read_record(path) for path in sorted(directory.glob("runs/*/*"))]
    seeds = Counter(record["arm"] for record in records)
    study = recorded_study(name, seeds)
    _, found = study_comparison(study, directory)
    link = f"[all tables{' and curves' if study.primary else ''}](results/{name}.md)"
    head = f"{so_far(study, seeds)}{origin(records)}"
    table = summary_table(found, study.baseline, study.primary, study.margin)
    replace_block(page, name, f"{head}; {link}.\n\n{table}")
    arms_text = ", ".join(f"{arm} {count_of(seeds[arm], 'seed')}" for arm in study.arms)
    head = f"{so_far(study, seeds)}{arms_text}. {origin(records)}."
    tables = as_markdown(comparison_tables(found, study.baseline, study.primary, study.margin))
    pictures = plots(name, study, directory) if study.primary else ""  # a sweep needs no curves
    write_page(name, study.title, head, tables, pictures, stated(study.hypotheses))


def so_far(study: Study, seeds: Counter[str]) -> str:
    """Return a sentence that a study whose primary comparison has fewer seeds than planned begins with, else ""."""
    done = min(seeds[study.baseline], seeds[study.primary]) if study.primary else len(study.seeds)
    return f"**Seeds so far: {done} of {len(study.seeds)}.** " if done < len(study.seeds) else ""


def plots(name: str, study: Study, directory: Path) -> str:
    """Write a study's pictures, and return the Markdown that shows them."""
    runs = sorted(read_runs([str(directory / "runs")]), key=lambda run: [*study.arms].index(run.label))
    lines = []
    for plot in plot_arms(group_arms(runs, study.baseline), study.accuracy or None, last_common_step(runs)):
        if plot.name in PLOTS:
            path = DOCS / "results" / f"{name}_{plot.name}.png"
            write_bytes(path, plot.png)
            lines.append(f"![{plot.title}]({path.name})")
    return "\n".join(lines)


def study_outcome(name: str) -> Comparison | None:
    """Return the comparison of a study from its records, None without them."""
    if name in TINY:
        return tiny_comparison(json.loads(records(name).read_text()))
    if name not in studies():
        return None
    with unpacked(records(name)) as directory:
        study = recorded_study(name, {path.parent.name for path in directory.glob("runs/*/*")})
        return study_comparison(study, directory)[1]


def make_efficiency(page: Path) -> None:
    """Make the tables of efficiencies of start models, and of the trainings that they should predict."""
    measured = json.loads(records(EFFICIENCY).read_text())
    text = "\n\n".join(
        [f"{origin(measured.values())}.", gradients_results.measurement_table(measured),
         gradients_results.efficiency_table(measured, study_outcome)]
    )  # fmt: skip
    replace_block(page, EFFICIENCY, text)


def make_tiny(page: Path) -> None:
    """Make the table of all studies of tiny models on `page`, and their own page."""
    rows, parts = [], []
    for name, about in TINY.items():
        content = json.loads(records(name).read_text())
        baseline, primary = content["baseline"], content["primary"]
        found = tiny_comparison(content)
        own = found[primary][OUTCOME]
        rows.append([
            name, about, content["commit"], str(own.runs), interval_text(found[baseline][OUTCOME].estimate),
            interval_text(own.estimate), difference_text(own.difference) if own.difference else "-",
        ])  # fmt: skip
        where = f"Commit {content['commit']}, {content['trainer']}, {content['machine']}."
        parts += [f"## {content['title']}", where, as_markdown(comparison_tables(found, baseline, primary))]
        parts += [stated(content["hypotheses"])]
    head = ["study", "what differs", "commit", "seeds", "grpo", "tr_grpo", "difference"]
    replace_block(page, TINY_PAGE, f"[All tables](results/{TINY_PAGE}.md).\n\n{markdown_table(rows, head)}")
    write_page(TINY_PAGE, "Tiny models on Knights and Knaves", *parts)


def make_chains(page: Path) -> None:
    """Make the map and the prediction on `page`, and the page and the pictures of the study of chains."""
    lines = chains_results.read_lines(records(CHAINS))
    study = yaml.safe_load((STUDIES / CHAINS / "map.yaml").read_text())
    block, parts, found = chains_results.sections(lines, study)
    chains_results.plot_map(found, DOCS / "results" / f"{CHAINS}_map.png")
    chains_results.plot_predictions(found, lines, DOCS / "results" / f"{CHAINS}_prediction.png")
    head = f"{study['seeds']} seeds a chain; learning rates chosen with {study['tuning_seeds']} others. {origin(lines.values())}."
    replace_block(page, CHAINS, f"{origin(lines.values())}; [all tables](results/{CHAINS}.md).\n\n{block}")
    write_page(CHAINS, study["title"], head, *parts, stated(study["hypotheses"]))


def make_update_effects(page: Path) -> None:
    """Make the tables of the effects of one update on `page`, their own page and the picture."""
    runs = update_effects_results.read_runs(records(EFFECTS))
    study = yaml.safe_load((STUDIES / EFFECTS / "study.yaml").read_text())
    runs = {name: runs[name] for name in study["runs"] if name in runs}
    block, parts = update_effects_results.sections(runs, study["arms"])
    update_effects_results.plot_effects(runs, study["arms"], DOCS / "results" / f"{EFFECTS}.png")
    head = f"{origin(record for records in runs.values() for record in records)}."
    replace_block(page, EFFECTS, f"{head[:-1]}; [all tables](results/{EFFECTS}.md).\n\n{block}")
    write_page(EFFECTS, study["title"], head, *parts, stated(study["hypotheses"]))


def write_page(name: str, title: str, *parts: str) -> None:
    """Write ``docs/results/<name>.md``."""
    note = "Made by `make results`; edit docs/make_results.py instead. [Results](../results.md) explains the columns."
    text = "\n\n".join(filter(None, (f"# {title}", note, *parts)))
    write_text(DOCS / "results" / f"{name}.md", text + "\n")


def stated(hypotheses: Iterable[str]) -> str:
    """Return hypotheses as a Markdown list."""
    return "Stated before the runs:\n\n" + "\n".join(f"- {text}" for text in hypotheses)


def commit_text(record: dict[str, Any]) -> str:
    """Return the commit of a record, and whether it was all that ran."""
    return str(record["commit"])[:7] + (
        " with changes that were not committed" if record.get("uncommitted_changes") else ""
    )


def origin(records: Iterable[dict[str, Any]]) -> str:
    """Return commits, versions and machines of records."""
    records = list(records)
    commits = " and ".join(sorted(set(map(commit_text, records))))
    places = sorted({f"torch {record['versions']['torch']}, {record['machine']}" for record in records})
    return ", ".join([f"Commit {commits}", *places])


def summary_table(found: Comparison, baseline: str, primary: str, margin: float | None) -> str:
    """Return a study's outcome, its difference from the baseline, the equivalence test, gap and gradient norm, by arm."""
    shown = [name for name in ("gap", "grad_norm") if any(name in row for row in found.values())]
    rows = []
    for arm, row in found.items():
        outcome = row[OUTCOME]
        difference = outcome.difference
        cells = [arm_label(arm, primary), str(outcome.runs), interval_text(outcome.estimate)]
        if primary:
            cells.append(difference_text(difference) if difference else "-")
        rows.append([*cells, *(interval_text(row[name].estimate) for name in shown)])
    head = ["arm", "seeds", words(OUTCOME), *([f"minus {baseline}"] if primary else []), *map(words, shown)]
    return markdown_table(rows, head)


def replace_block(page: Path, name: str, text: str) -> None:
    """Replace the text between the markers of `name`.

    Raises:
        ValueError: the page does not have the markers exactly once.
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before = page.read_text()
    after, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{text}\n\n{end}", before, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{page} has {count} places for {name}; put {begin} and {end} where its table belongs")
    write_text(page, after)


def studies() -> list[str]:
    """Return the names of the studies with records, sorted; those of tiny models count as one."""
    names = {path.name.split(".")[0] for path in STUDIES.glob("*/records/*")}
    return sorted({TINY_PAGE if name in TINY else name for name in names})


def main() -> None:
    names = studies()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"studies; all of {', '.join(names)} if left out")
    parser.add_argument("--pack", type=Path, metavar="DIR", help="take over the records of this study first")
    parser.add_argument(
        "--analyzed", nargs="+", default=(), metavar="CHECKPOINT=DIR", help="take over results of a measurement"
    )
    parser.add_argument("--page", type=Path, default=DOCS / "results.md", help="Markdown file with the markers")
    options = parser.parse_args()
    if options.pack:
        name = options.pack.resolve().name
        count = pack(options.pack, STUDIES / "comparisons" / "records" / f"{name}.tar.xz")
        print(f"{name}: {count_of(count, 'run')} taken over")
        options.names = [name]
    if options.analyzed:
        pairs = [pair.partition("=") for pair in options.analyzed]
        if len(options.names) != 1 or not all(place for _, _, place in pairs):
            parser.error("--analyzed takes CHECKPOINT=DIR after one name, such as small_lm_sharpness")
        take_over(options.names[0], {checkpoint: Path(place) for checkpoint, _, place in pairs})
    for name in options.names or names:
        make(name, options.page)
        print(f"{name}: done")


if __name__ == "__main__":
    main()

"""Make the tables and pictures of docs/results.md again from the records of the runs in docs/results.

examples, from a checkout:
  make results                                              everything
  python docs/make_results.py small_lm                      one study
  python docs/make_results.py --pack runs/compare/small_lm  take over the records of a study's runs, finished ones alone
  python docs/make_results.py small_lm_gradients --analyzed start=runs/analyze/start grpo=runs/analyze/grpo
                                                            take over what `verl-trgrpo analyze` found
  python docs/make_results.py small_lm_sharpness --analyzed grpo/seed-0=DIR tr_grpo/seed-0=DIR
                                                            the same with --sharpness, one model each, with the same --radius

NAME.tar.xz holds, for each run of recipes/compare/NAME.yaml: run.json (settings, commit, versions, machine), every metric of
every step, and the responses of its validations with their scores. NAME.json has what analyze found, or, of older studies, the
figures of each run. Text between "<!-- NAME: begin -->" and "<!-- NAME: end -->" on the page is replaced.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from verl_trgrpo.common.files import replaced_file, write_bytes, write_json, write_text
from verl_trgrpo.common.text import count_of, markdown_table
from verl_trgrpo.runs.compare.comparison import Comparison, compare
from verl_trgrpo.runs.compare.study import read_study
from verl_trgrpo.runs.compare.table import comparison_tables, study_comparison
from verl_trgrpo.runs.record import read_record
from verl_trgrpo.runs.report.charts import curve_charts
from verl_trgrpo.runs.report.runs import group_arms, last_common_step, read_runs
from verl_trgrpo.runs.statistics import interval_text, mean_interval

DOCS = Path(__file__).parent
STUDIES = DOCS.parent / "recipes" / "compare"
# Pictures on the page, among those that `verl-trgrpo report` draws: how the title begins, and the end of the file's name.
PICTURES = {
    "validation": "accuracy",
    "gradient norm": "gradient_norm",
    "standard deviation of token weights": "weights",
    "gradient of tokens with p < 0.25": "gradient_share",
}
SHARPNESS = ("gradient_norm", "sam_rise", "sam_curvature")


def pack(directory: Path, out: Path) -> int:
    """Write the records of the finished runs below `directory` to an archive; returns their number."""
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


def from_archive(name: str, directory: Path) -> str:
    """Return what the page says of a study whose records were unpacked to `directory`; draws its pictures."""
    records = [read_record(path) for path in sorted(directory.glob("runs/*/*"))]
    seeds = Counter(record["arm"] for record in records)
    path = STUDIES / f"{name}.yaml"
    study = read_study(path, arms=[arm for arm in read_study(path).arms if arm in seeds])
    arms_text = ", ".join(f"{arm} {count_of(seeds[arm], 'seed')}" for arm in study.arms)
    head = f"{study.title}: {arms_text}; {origin(records)}."
    runs = sorted(read_runs([str(directory / "runs")]), key=lambda run: [*study.arms].index(run.label))
    arms = group_arms(runs, study.baseline)
    pictures = []
    for chart in curve_charts(arms, study.accuracy or None, last_common_step(runs)):
        for start, ending in PICTURES.items() if study.primary else ():  # a sweep is a table
            if chart.alt.startswith(start):
                path = DOCS / "results" / f"{name}_{ending}.png"
                write_bytes(path, chart.png)
                pictures.append(f"![{chart.alt.split(',')[0]}](results/{path.name})")
    _, found = study_comparison(study, directory)
    parts = [head, tables(found, study.baseline, study.primary, study.margin), "\n".join(pictures)]
    return "\n\n".join(filter(None, parts))


def origin(records: Iterable[dict[str, Any]]) -> str:
    """Return where records come from: commits, versions, machines."""
    records = list(records)
    commits = " and ".join(sorted({str(record["commit"])[:7] for record in records}))
    places = sorted({f"torch {record['versions']['torch']}, {record['machine']}" for record in records})
    return ", ".join([f"commit {commits}", *places])


def from_figures(path: Path) -> str:
    """Return what the page says of measured checkpoints, or of a study of which the figures of each run are left."""
    content = json.loads(path.read_text())
    for measured, table in {"gradients": gradients_table, "sharpness": sharpness_table}.items():
        if path.stem.endswith(measured):
            origin_text = origin(content.values())
            return f"{origin_text[0].upper()}{origin_text[1:]}.\n\n{table(content)}"
    figures = {arm: {int(seed): run for seed, run in runs.items()} for arm, runs in content["runs"].items()}
    return tables(compare(figures, content["baseline"], content["primary"]), content["baseline"], content["primary"])


def take_over(name: str, places: dict[str, Path]) -> None:
    """Write what `verl-trgrpo analyze` found, for each checkpoint, to the file of `name`."""
    file = "sharpness.json" if name.endswith("sharpness") else "gradients.json"
    content = {checkpoint: json.loads((place / file).read_text()) for checkpoint, place in places.items()}
    write_json(DOCS / "results" / f"{name}.json", content)


def sharpness_table(content: dict[str, dict[str, Any]]) -> str:
    """Return, for each radius, means over the checkpoints of an arm, and differences from grpo's of the same seed."""
    by_radius: dict[float, dict[str, dict[str, dict[str, Any]]]] = {}
    for checkpoint, measured in content.items():
        arm, seed = checkpoint.split("/")
        [models] = measured["models"].values()
        for radius, found in zip(measured["options"]["radius"], models, strict=True):
            by_radius.setdefault(radius, {}).setdefault(arm, {})[seed] = found
    rows = []
    for radius, arms in by_radius.items():
        for arm, seeds in arms.items():
            cells = [
                interval_text(mean_interval([seed[name]["mean"] for seed in seeds.values()])) for name in SHARPNESS
            ]
            differences = ["-"] * len(SHARPNESS)
            if arm != "grpo" and seeds.keys() <= arms["grpo"].keys():
                pairs = [(found, arms["grpo"][seed]) for seed, found in seeds.items()]
                differences = [
                    interval_text(
                        mean_interval([found[name]["mean"] - base[name]["mean"] for found, base in pairs]), "+"
                    )
                    for name in SHARPNESS
                ]
            rows.append([f"{radius:g}", arm, str(len(seeds)), *cells, *differences])
    shown = [name.replace("_", " ") for name in SHARPNESS]
    return markdown_table(rows, ["radius", "arm", "seeds", *shown, *(f"{name} minus grpo" for name in shown)])


def gradients_table(content: dict[str, dict[str, Any]]) -> str:
    """Return what `verl-trgrpo analyze` found for each checkpoint: the part of tokens with p < 0.25, and what weights do."""
    rows = []
    for checkpoint, found in content.items():
        quarters = [quarter["tokens"] for quarter in found["quarters"]]
        plain, weighted = found["shapings"]["uniform"], found["shapings"]["sigmoid"]
        names = ("share_at_logits", "share_at_parameters")
        shares = [f"{effect[name][0]:.3f}" for name in names for effect in (plain, weighted)]
        cosine = plain["cosine"][0][-1]
        rows.append(
            [
                checkpoint,
                f"{found['tokens']:,}",
                f"{quarters[0] / sum(quarters):.3f}",
                *shares,
                f"{plain['update_norm'][0] / plain['update_norm'][-1]:.2f}",
                f"{weighted['update_norm'][0] / weighted['update_norm'][-1]:.2f}",
                "-" if cosine is None else f"{cosine:.2f}",
                f"{found['envelope']['lowest']:.3f} to {found['envelope']['highest']:.3f}",
            ]
        )
    head = [
        "checkpoint", "tokens", "p < 0.25", "share at logits, w = 1", "TR-GRPO", "share at parameters, w = 1", "TR-GRPO",
        "update p < 0.25 / p > 0.75, w = 1", "TR-GRPO", "cosine of the two", "norm at logits / (1 - p)",
    ]  # fmt: skip
    return markdown_table(rows, head)


def tables(found: Comparison, baseline: str, primary: str, margin: float | None = None) -> str:
    """Return the tables of a comparison, each after what it shows."""
    shown = comparison_tables(found, baseline, primary, margin)
    return "\n\n".join(f"{table.about}\n\n{markdown_table(table.rows, table.head)}" for table in shown)


def replace_block(page: Path, name: str, text: str) -> None:
    """Replace what stands between the markers of `name`; ValueError without them."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before = page.read_text()
    after, count = re.subn(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: f"{begin}\n\n{text}\n\n{end}", before, flags=re.DOTALL
    )
    if count != 1:
        raise ValueError(f"{page} has {count} places for {name}; put {begin} and {end} where its tables belong")
    write_text(page, after)


def make(name: str, page: Path) -> None:
    """Make the tables of one study again, and its pictures."""
    archive = DOCS / "results" / f"{name}.tar.xz"
    if not archive.is_file():
        return replace_block(page, name, from_figures(archive.with_name(f"{name}.json")))
    with tempfile.TemporaryDirectory() as directory, tarfile.open(archive) as packed:
        packed.extractall(directory, filter="data")
        return replace_block(page, name, from_archive(name, Path(directory)))


def studies() -> list[str]:
    """Return the names of the studies with files, sorted."""
    files = (DOCS / "results").iterdir()
    return sorted({path.name.split(".")[0] for path in files if path.name.endswith((".tar.xz", ".json"))})


def main() -> None:
    names = studies()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"studies; all of {', '.join(names)} if left out")
    parser.add_argument("--pack", type=Path, metavar="DIR", help="take over the records of this study first")
    parser.add_argument(
        "--analyzed", nargs="+", default=(), metavar="CHECKPOINT=DIR", help="take over what analyze found"
    )
    parser.add_argument("--page", type=Path, default=DOCS / "results.md", help="Markdown file with the markers")
    options = parser.parse_args()
    if options.pack:
        name = options.pack.resolve().name
        count = pack(options.pack, DOCS / "results" / f"{name}.tar.xz")
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

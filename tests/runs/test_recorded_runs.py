"""What `health` says of the runs that the repository records: docs/health.md has these numbers."""

import tarfile
from collections import Counter

from tests.scripts import ROOT
from verl_trgrpo.runs.health import judge
from verl_trgrpo.runs.metrics import read_run

CONSTANT = "weights are all equal"  # baselines that were recorded when a constant shaping still logged its spread


def test_the_page_of_health_has_the_numbers_of_the_recorded_runs(tmp_path):
    counts = Counter()
    for archive in sorted((ROOT / "studies/comparisons/records").glob("*.tar.xz")):
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path / archive.stem, filter="data")
    for record in tmp_path.rglob("run.json"):
        seen = [each for each in judge(read_run(record.parent).line) if each.counts]
        counts["all"] += 1
        counts["constant"] += any(each.signal.name == CONSTANT for each in seen)
        counts["sick"] += any(each.is_sick and each.signal.name != CONSTANT for each in seen)
        counts["machine"] += any(each.signal.machine for each in seen)
    page = " ".join((ROOT / "docs/health.md").read_text().split())
    assert counts["all"] > 100 and counts["sick"] < 10
    assert (
        f"Of {counts['all']} [recorded runs](results.md) {counts['sick']} are sick" in page
        and f"{counts['machine']} took longer" in page
        and f"{counts['constant']} runs of baselines" in page
    )

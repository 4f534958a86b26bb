"""The page in a real browser: it loads, runs nothing, and fits a phone."""

import json
import re
import shutil
import subprocess

import pytest

from tests.runs.report.files import generation, write_comparison, write_generations
from verl_trgrpo.runs.report.build import ReportOptions, build_report

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
MEASURE = """<script>addEventListener("load", () => parent.postMessage({
  page: document.documentElement.scrollWidth, window: innerWidth, attacked: window.attacked === true,
  wide: [...document.querySelectorAll(".scroll")].filter(part => part.scrollWidth > part.clientWidth).length,
  gaps: [...document.querySelectorAll(".scroll + .scroll")].map(part =>
    part.getBoundingClientRect().top - part.previousElementSibling.getBoundingClientRect().bottom),
  pictures: [...document.images].map(image => image.naturalWidth) }, "*"));</script></body>"""
# In a frame, since a window is never as narrow as a phone.
FRAME = """<title>waiting</title><script>addEventListener("message", event => {
  document.title = "measured " + JSON.stringify(event.data); });</script>
<iframe src="measured.html" style="width: WIDTHpx; height: 2000px; border: 0"></iframe>"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")


@pytest.mark.parametrize("width", [390, 1280])
def test_it_loads_fits_and_runs_nothing(tmp_path, width):
    study = write_comparison(tmp_path / "study", {"grpo": 0.05, "an_arm_with_a_rather_long_name": 0.08}, seeds=2)
    attack = "<script>attacked = true</script><img src=x onerror='attacked = true'>" + "long" * 300
    rows = {step: [generation("p", attack, float(step))] for step in (0, 1)}
    write_generations(study / "runs" / "grpo" / "seed-0" / "validation", rows)
    report = build_report(ReportOptions(runs=(str(study),), out=tmp_path / "r.html"))
    # The page forbids all scripts; a copy without that, with one that measures.
    source = report.page.read_text()
    open_source = re.sub(r"<meta http-equiv=.*?>\n", "", source).replace("</body>", MEASURE)
    assert open_source.count("<script>") == 1
    (tmp_path / "measured.html").write_text(open_source)
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("WIDTH", str(width)))
    command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,2000"]
    result = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", frame.as_uri()],
        capture_output=True,
        text=True,
        timeout=3600,
        check=True,
    )
    found = json.loads(re.search(r"<title>measured (.*?)</title>", result.stdout)[1])
    assert found["window"] == width
    assert found["page"] <= width, "nothing sticks out on the right"
    assert found["wide"] == 0, "tables need no scrolling"
    assert found["gaps"] and min(found["gaps"]) > 8, "tables stand apart"
    assert found["pictures"] and min(found["pictures"]) > 0
    assert found["attacked"] is False

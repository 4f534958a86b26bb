"""`verl-trgrpo report` as a user meets it."""

from tests.runs.report.files import write_comparison
from verl_trgrpo.cli.main import main


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["report", "study", "--baseline", "tr_grpo", "--upto", "4"]) == 0
    captured = capsys.readouterr()
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    assert captured.out.splitlines()[:2] == [
        "tr_grpo: validation accuracy 0.640 [0.590, 0.690], 3 runs; the baseline",
        "grpo: validation accuracy 0.520 [0.470, 0.570], 3 runs; -0.120 p=0.25 (0.75) against tr_grpo: these runs do not "
        "tell them apart",
    ]
    assert captured.out.endswith("report.html, 11 pictures in report_figures\n")
    assert "note: The comparison takes steps up to 4" in captured.err

"""`verl-trgrpo report` as a user meets it."""

from tests.runs.report.files import write_comparison
from verl_trgrpo.cli.main import main


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["report", "study", "--baseline", "tr_grpo"]) == 0
    captured = capsys.readouterr()
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    baseline, other = captured.out.splitlines()[:2]
    assert "tr_grpo" in baseline and "0.800 [0.750, 0.850], 3 runs" in baseline
    assert all(part in other for part in ("grpo", "0.620 [0.570, 0.670], 3 runs", "-0.180 p=0.25 (0.75)"))
    assert captured.out.endswith("\nreport.html\n")

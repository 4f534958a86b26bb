"""`verl-trgrpo compare` and `report`, from runs to their table and page."""

from tests.compare.files import write_comparison
from verl_trgrpo.cli.main import main


def test_finished_runs_become_a_table(tmp_path, capsys):
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["compare", str(tmp_path / "study")]) == 0
    shown = capsys.readouterr()
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    assert "| tr_grpo | 3     | 0.800 [0.750, 0.850]" in shown.out and "+0.180 p=0.25 (0.75)" in shown.out
    assert "- final accuracy: " in shown.out and "None" not in shown.out
    assert main(["compare", str(tmp_path / "study"), "--metric", "val-core/kk/acc"]) == 2
    assert (
        "--metric val-core/kk/acc: no run has this metric; choose one of val-core/kk_3ppl/acc/mean@1"
        in capsys.readouterr().err
    )


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["report", "study", "--baseline", "tr_grpo"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    page = (tmp_path / "report.html").read_text()
    assert "0.800 [0.750,\u00a00.850]" in page and "-0.180 p=0.25 (0.75)" in page

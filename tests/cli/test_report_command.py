"""`verl-trgrpo report` as a user meets it."""

from tests.compare.files import write_comparison
from verl_trgrpo.cli.main import main


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    assert main(["report", "study", "--baseline", "tr_grpo"]) == 0
    assert capsys.readouterr().out == "report.html\n"
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    page = (tmp_path / "report.html").read_text()
    assert "0.800 [0.750,\u00a00.850]" in page and "-0.180 p=0.25 (0.75)" in page

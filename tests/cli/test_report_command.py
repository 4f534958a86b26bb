"""`verl-trgrpo report` as a user meets it: output, exit codes, examples."""

from tests.runs.report.files import generation, write_comparison, write_generations, write_run
from verl_trgrpo.cli.main import main


def test_a_comparison_becomes_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_comparison(tmp_path / "study", {"grpo": 0.05, "tr_grpo": 0.08}, seeds=3)
    dumps = write_generations(tmp_path / "dumps", {step: [generation("p", "o", float(step))] for step in (0, 1)})
    words = [
        "report",
        "study",
        "--baseline",
        "tr_grpo",
        "--upto",
        "4",
        "--title",
        "Mine",
        "--generations",
        f"D={dumps}",
    ]
    assert main(words) == 0
    captured = capsys.readouterr()
    # Three pairs with the same sign: p = 2 / 2^3; three figures of one arm are tested.
    assert captured.out.splitlines()[:2] == [
        "tr_grpo: validation accuracy 0.640 [0.590, 0.690], 3 runs. This is the baseline.",
        "grpo: validation accuracy 0.520 [0.470, 0.570], 3 runs. -0.120 against tr_grpo: these runs do not "
        "tell them apart (p = 0.25, corrected 0.75, 3 pairs; so few pairs cannot give p below 0.25).",
    ]
    assert captured.out.endswith("report.html, 7 pictures in report_figures\n")
    assert "note: The comparison takes steps up to 4" in captured.err
    page = (tmp_path / "report.html").read_text()
    assert "<h1>Mine</h1>" in page and "<h3>D</h3>" in page


def test_wrong_input_is_explained(tmp_path, capsys):
    write_run(tmp_path / "grpo-seed0", 0.1)
    (tmp_path / "empty").mkdir()
    assert main(["report", str(tmp_path / "empty"), "--out", str(tmp_path / "r.html")]) == 2
    assert "has no metrics" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "grpo-seed0"), "--out", str(tmp_path)]) == 2
    assert "is a directory; name a file" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.html"))

"""The trajectory that is shown after the search demonstration."""

import json

from verl_trgrpo.cli.demonstrations import example_trajectory


def dump(directory, step, *responses):
    rows = [{"input": "q", "output": "<search>a</search>" * searches, "score": score} for searches, score in responses]
    (directory / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_example_is_a_right_response_of_the_last_step_with_the_most_searches(tmp_path):
    assert example_trajectory(tmp_path) is None
    dump(tmp_path, 9, (3, 1.0))
    dump(tmp_path, 10, (1, 1.0), (3, 0.0), (2, 1.0), (0, 1.0))
    assert example_trajectory(tmp_path).text.count("</search>") == 2
    dump(tmp_path, 11, (0, 0.0), (2, 0.0))
    assert example_trajectory(tmp_path).text.count("</search>") == 2, "where none is right, a wrong one"

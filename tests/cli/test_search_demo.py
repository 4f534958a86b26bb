"""The trajectory that is shown after the search demonstration."""

import json

from verl_trgrpo.cli.demonstrations import example_trajectory


def response(searches, score, mark=""):
    return {"input": "question", "output": "<search>a</search>" * searches + mark, "score": score}


def dump(directory, step, *responses):
    lines = (json.dumps(response, ensure_ascii=False) + "\n" for response in responses)
    (directory / f"{step}.jsonl").write_text("".join(lines), encoding="utf-8")


def test_the_example_is_a_right_response_of_the_last_step_with_the_most_searches(tmp_path):
    assert example_trajectory(tmp_path) is None
    dump(tmp_path, 9, response(3, 1.0))
    candidates = [response(2, 1.0, "\u2028first"), response(2, 1.0, "second")]
    dump(tmp_path, 10, response(1, 1.0), response(3, 0.0), *candidates, response(0, 1.0))
    chosen = [example_trajectory(tmp_path, seed) for seed in range(20)]
    assert all(example in [candidate | {"step": 10} for candidate in candidates] for example in chosen)
    assert len({example["output"] for example in chosen}) == 2
    assert chosen[0] == example_trajectory(tmp_path, 0)


def test_without_a_right_response_the_example_is_a_wrong_one_and_without_any_there_is_none(tmp_path):
    dump(tmp_path, 0, response(0, 0.0), response(2, 0.0))
    assert example_trajectory(tmp_path) == response(2, 0.0) | {"step": 0}
    (tmp_path / "notes.jsonl").write_text("not a dump")
    dump(tmp_path, 5)
    assert example_trajectory(tmp_path) is None

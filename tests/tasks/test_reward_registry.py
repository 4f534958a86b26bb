"""Which names have a reward, what may be registered, and which options reach a reward."""

import pytest

from verl_trgrpo.tasks import Score, compute_score, register_reward, registry
from verl_trgrpo.tasks.registry import find_reward, find_right_response, has_reward, options_of

TRUTH = "(1) Zoey is a knight"


@pytest.fixture(autouse=True)
def copy_of_the_registry(monkeypatch):
    monkeypatch.setattr(registry, "_families", dict(registry._families))


def score_echo(response, ground_truth, extra_info, *, factor=1.0):
    return Score(factor, acc=float(response == ground_truth))


@pytest.mark.parametrize("data_source", ["kk", "kk_1ppl", "kk_10ppl", "math", "minerva", "search_qa", "searchR1_nq"])
def test_known_names(data_source):
    assert has_reward(data_source)
    assert callable(find_reward(data_source))


@pytest.mark.parametrize(
    "data_source", ["", "kk_0ppl", "kk_01ppl", "kk_ppl", "kk_3ppls", "akk", "Math", "kk_<n>ppl", None, 3, ["kk"]]
)
def test_unknown_names(data_source):
    assert not has_reward(data_source)
    assert find_right_response(data_source) is None


def test_right_responses_belong_to_their_names():
    register_reward("echo", "echo_<n>", right_response=str)(score_echo)
    register_reward("silent")(score_echo)
    assert find_right_response("echo") is find_right_response("echo_12") is str
    assert find_right_response("silent") is None and has_reward("silent")


def test_a_name_as_it_stands_goes_before_a_pattern():
    def score_one(response, ground_truth, extra_info):
        return Score(0.5, acc=0.0)

    register_reward("echo_<n>")(score_echo)
    register_reward("echo_1")(score_one)
    assert find_reward("echo_1") is score_one and find_reward("echo_2") is score_echo


def test_the_same_function_may_be_registered_again_and_another_may_not():
    register_reward("echo")(score_echo)
    assert register_reward("echo")(score_echo) is score_echo
    with pytest.raises(ValueError, match="echo already has a reward; register one or more new names"):
        register_reward("new", "echo")(lambda response, ground_truth, extra_info: Score(0.0, 0.0))
    assert not has_reward("new")


@pytest.mark.parametrize("names", [["good", " "], ["good", 3], ["good", None], [""], []])
def test_one_bad_name_is_enough_to_register_none(names):
    with pytest.raises(ValueError, match="data sources are"):
        register_reward(*names)(score_echo)
    assert not has_reward("good")


def test_options_go_to_the_rewards_that_have_them():
    register_reward("echo")(score_echo)
    assert list(options_of(score_echo)) == ["factor"]
    assert compute_score("echo", "a", "a", factor=2.0)["score"] == 2.0
    assert compute_score("echo", "a", "a", structure_format_score=0.2, math_time_limit=1.0)["score"] == 1.0
    for option in ("reward_router_address", "reward_model_tokenizer"):  # veRL's own
        assert compute_score("echo", "a", "a", **{option: None})["score"] == 1.0
    with pytest.raises(ValueError, match=r"no reward has the options bar, foo; known are: .*factor"):
        compute_score("echo", "a", "a", factor=2.0, foo=1, bar=2)


@pytest.mark.parametrize("f1", [None, 0.25, 0.0])
def test_f1_is_acc_where_a_family_has_none(f1):
    score = Score(3.0, acc=1.0, f1=f1)
    assert score.as_dict() == {
        "score": 3.0, "acc": 1.0, "format_ok": 1.0, "f1": 1.0 if f1 is None else f1, "gold_unparseable": 0.0, "timed_out": 0.0,
    }  # fmt: skip
    with pytest.raises(AttributeError):
        score.acc = 0.0  # one score may be shared


def test_counts_of_the_agent_loop_may_be_missing():
    register_reward("echo")(score_echo)
    plain = compute_score("echo", "a", "a")
    for extra_info in (None, {}, {"rollout_metrics": None}, {"rollout_metrics": {}}):
        assert compute_score("echo", "a", "a", extra_info) == plain

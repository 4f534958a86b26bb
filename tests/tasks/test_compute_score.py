"""The door veRL calls: routing, and how veRL loads, pickles and calls it."""

import pickle
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies.rewards import mutants
from verl_trgrpo.tasks import (
    GroundTruthError,
    Score,
    compute_score,
    has_reward,
    known_data_sources,
    register_reward,
    score_response,
)
from verl_trgrpo.tasks.reward_input import reward_input

TRUTH = "(1) Zoey is a knight\n(2) Oliver is a knave"
RESPONSE = f"<think>a</think><answer>{TRUTH}</answer>"
FULL_MARKS = {
    "score": 3.0,
    "acc": 1.0,
    "format_ok": 1.0,
    "f1": 1.0,
    "gold_unparseable": 0.0,
    "timed_out": 0.0,
    "restated": 0.0,
}


@pytest.mark.parametrize("data_source", ["kk", "kk_logic", "kk_2ppl", "kk_12ppl"])
def test_knights_and_knaves_data_sources(data_source):
    assert compute_score(data_source, RESPONSE, TRUTH) == FULL_MARKS


@pytest.mark.parametrize("data_source", [" ", "KK", "kk_", "kk_3ppl ", "xkk", "maths", "countdown", None, 3, ["kk"]])
def test_an_unknown_data_source_is_an_error_of_one_line_that_says_how_to_choose_a_reward(data_source):
    with pytest.raises(ValueError, match=re.escape(repr(data_source))) as error:
        compute_score(data_source, RESPONSE, TRUTH)
    message = str(error.value)
    assert "default_reward=math" in message and "register_reward" in message and "\n" not in message
    assert len(message) < 400, "the close names, not all"


def test_close_names_of_an_unknown_data_source_are_named():
    with pytest.raises(ValueError, match="close names: hotpotqa"):
        compute_score("hotpot", RESPONSE, TRUTH)


# Names as public builders write them, and the reward that they mean.
PUBLIC_NAMES = {
    "score_math": (
        "", "aime", "amc", "aime24", "aime25", "AIME2024", "AIME-2025", "aime_2024", "HuggingFaceH4/aime_2024", "amc23", "AMC",
        "MATH-500", "math500", "math_500", "HuggingFaceH4/MATH-500", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval",
        "simplerl/math_level3to5", "simplelr_math_35", "simplelr/gsm8k", "deepscaler_train", "math_dsr", "openai/gsm8k",
        "gsm8k", "numina_cn_k12", "train-math-numinamath1.5_olympiads", "orz-math-72k", "OlympiadBench", "olympiadbench",
        "Hothan/OlympiadBench", "HMMT25", "hiyouga/math12k",
    ),
    "score_minerva": ("minervamath", "minerva_math", "minerva_dsr", "math-ai/minervamath", "simplerl/minerva_math"),
    "score_dapo": ("math_dapo_reasoning", "DAPO-Math-17K", "BytedTsinghua-SIA/DAPO-Math-17k"),
    "score_search_qa": ("nq", "triviaqa", "popqa", "hotpotqa", "2wikimultihopqa", "musique", "bamboogle"),
    "score_knights_and_knaves": ("K-and-K/knights-and-knaves",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("reward", "name"), [(reward, name) for reward, names in PUBLIC_NAMES.items() for name in names]
)
def test_names_of_other_projects_have_the_reward_that_they_mean(reward, name):
    from verl_trgrpo.tasks import registry
    from verl_trgrpo.tasks.math import reward as math

    expected = {"score_dapo": math.score_dapo, "score_minerva": math.score_minerva, "score_math": math.score_math}
    found = registry.find_reward(name)
    assert found is expected[reward] if reward in expected else found.__name__ == reward


@pytest.mark.parametrize(
    "name", ["train-code-taco", "math_choice", "openr1", "kk_logic_lithuanian", "mathvista", "triviaqa_v"]
)
def test_a_name_that_only_resembles_a_public_one_has_no_reward(name):
    assert not has_reward(name)


def test_the_documentation_lists_the_names_of_other_projects():
    from verl_trgrpo.tasks import registry

    text = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text(encoding="utf-8")
    assert [name for name in registry._known.foreign if name and f"`{name}`" not in text] == []


def test_gsm8k_is_read_in_the_form_that_its_prompt_asks_for():
    asked = reward_input({}, [{"role": "user", "content": 'How many? Output the final answer after "####".'}])
    assert compute_score("openai/gsm8k", "48 + 24 = 72\n#### 72", "72", asked)["acc"] == 1.0
    assert compute_score("openai/gsm8k", "48 + 24 = 72", "72", asked)["acc"] == 0.0


def test_a_default_reward_scores_only_sources_without_one(registry):
    box = r"\boxed{\frac{1}{2}}"
    assert compute_score("my_problems", box, "0.5", default_reward="math")["acc"] == 1.0
    assert compute_score("kk_3ppl", RESPONSE, TRUTH, default_reward="math") == FULL_MARKS
    assert has_reward("my_problems", "math") and not has_reward("my_problems") and not has_reward(None, "math")
    with pytest.raises(ValueError, match=r"default_reward='maths'.*math"):
        compute_score("my_problems", box, "0.5", default_reward="maths")


def test_a_registered_reward_takes_precedence_over_a_name_of_another_project(registry):
    def score_half(response, ground_truth, extra_info):
        return Score(0.5, acc=0.0)

    register_reward("openai/gsm8k", "aime*")(score_half)
    assert registry.find_reward("openai/gsm8k") is registry.find_reward("aime25") is score_half
    assert registry.find_reward("amc23") is not score_half


def test_every_score_is_a_float_under_the_same_keys():
    responses = [RESPONSE, "", "<think>a</think><answer></answer>", RESPONSE.replace("knave", "knight")]
    results = [compute_score("kk_3ppl", response, TRUTH) for response in responses]
    assert [result["score"] for result in results] == [3.0, -3.0, -1.0, -0.5]
    assert all(list(result) == list(FULL_MARKS) for result in results)
    assert all(type(value) is float for result in results for value in result.values())


def test_scoring_does_not_write_to_its_arguments():
    truth, extra_info = {"solution_text_format": TRUTH}, {"index": 0}
    result = compute_score("kk_3ppl", RESPONSE, truth, extra_info=extra_info)
    result["score"] = 7.0
    assert truth == {"solution_text_format": TRUTH}
    assert extra_info == {"index": 0}
    assert compute_score("kk_3ppl", RESPONSE, truth) == FULL_MARKS


def test_it_is_pickled_by_reference():
    assert pickle.loads(pickle.dumps(compute_score)) is compute_score


def test_verl_loads_and_calls_it_as_its_reward_loop_does():
    from omegaconf import OmegaConf
    from verl.trainer.ppo.reward import get_custom_reward_fn

    custom = {"path": "pkg://verl_trgrpo.tasks", "name": "compute_score", "reward_kwargs": {}}
    loaded = get_custom_reward_fn(OmegaConf.create({"reward": {"custom_reward_function": custom}}))
    loaded = pickle.loads(pickle.dumps(loaded))
    arguments = {"data_source": "kk_3ppl", "solution_str": RESPONSE, "ground_truth": TRUTH}
    assert loaded(**arguments, extra_info={"num_turns": None, "rollout_reward_scores": {}}) == FULL_MARKS
    assert loaded(**arguments, extra_info={}, reward_router_address="x", reward_model_tokenizer=None) == FULL_MARKS


def test_importing_the_rewards_is_light():
    code = (
        "import sys; import verl_trgrpo.tasks; "
        "print([name for name in ('torch', 'verl', 'vllm', 'ray', 'numpy') if name in sys.modules])"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.strip() == "[]"


def test_a_user_adds_a_data_source(registry):
    @register_reward("capitals", "capitals_*")
    def score_capitals(response, ground_truth, extra_info, *, case_sensitive=False):
        right = response == ground_truth if case_sensitive else response.lower() == ground_truth.lower()
        return Score(float(right), acc=float(right))

    assert compute_score("capitals", "paris", "Paris")["score"] == 1.0
    assert compute_score("capitals_7", "paris", "Paris", case_sensitive=True)["score"] == 0.0
    assert {"capitals", "capitals_*"} < set(known_data_sources())
    # Options of one family do not disturb another: they come from one setting for the whole run.
    assert compute_score("kk_3ppl", RESPONSE, TRUTH, case_sensitive=True) == FULL_MARKS
    with pytest.raises(ValueError, match=r"no reward has the option casesensitive; known are .*case_sensitive"):
        compute_score("capitals", "paris", "Paris", casesensitive=True)


@pytest.mark.parametrize("returned", [1.0, {"score": 1.0}, None])
def test_a_reward_that_returns_no_score_is_named_with_what_it_returned(registry, returned):
    def score_oddly(response, ground_truth, extra_info):
        return returned

    register_reward("odd")(score_oddly)
    with pytest.raises(TypeError, match=r"'odd'.*score_oddly") as raised:
        compute_score("odd", "x", "y")
    assert repr(returned) in str(raised.value) and "Score" in str(raised.value)


@pytest.mark.parametrize("names", [["kk"], ["new", "kk_logic"], [], ["  "]])
def test_a_data_source_cannot_be_taken_over(registry, names):
    before = known_data_sources()
    with pytest.raises(ValueError, match=r"register (one or more|a) new name"):
        register_reward(*names)(lambda response, ground_truth, extra_info: Score(0.0, 0.0))
    assert known_data_sources() == before


def test_reference_responses_belong_to_their_names_and_an_exact_name_takes_precedence(registry):
    def score_echo(response, ground_truth, extra_info):
        return Score(1.0, acc=1.0)

    def score_one(response, ground_truth, extra_info):
        return Score(0.5, acc=0.0)

    register_reward("echo", "echo_*", reference_response=str)(score_echo)
    register_reward("echo_1")(score_one)
    assert registry.reference_response_of("echo") is registry.reference_response_of("echo_12") is str
    assert registry.find_reward("echo_1") is score_one and registry.find_reward("echo_2") is score_echo
    assert registry.reference_response_of("echo_1") is registry.reference_response_of("nobody's") is None


NOT_A_TRUTH = [None, "", " \n", float("nan"), 7j, b"x", [], {}, [None], {"target": None}, [[]], True]
MALFORMED = {
    "kk": [*NOT_A_TRUTH, 7, "Zoey is a knight", {"solution_text_format": None}, "(1) Zoey is a knight\n(3) Ava is a knave"],
    "math": [*NOT_A_TRUTH, "}{", [""], [["5"]],
             r"\frac{1}{2", r"1}{2", r"\text{a}}", ["5", "{"], "NaN", float("inf"), {"answer": "5"}, "1" * 2001],
    "searchR1_nq": [*NOT_A_TRUTH, 7, {"target": []}, {"target": [""]}, {"golds": ["Paris"]}, ["Paris", None], [["Paris"]],
                    ["", " \n"]],
    "reasoning_gym/chain_sum": [
        *NOT_A_TRUTH, 7, "{", "[]", "NaN", '"text"', '{"task": "chain_sum"}', "[" * 100_000,
        '{"task": "chain_sum", "config": {}, "entry": {}}', '{"task": 3, "config": {}, "entry": {"answer": "2"}}',
        '{"task": "gsm_symbolic", "config": {}, "entry": {"answer": null}}',
        '{"task": "sudoku", "config": {}, "entry": {"answer": "2"}}',
        '{"task": "nosuch", "config": {}, "entry": {"answer": "2"}}',
        '{"task": "chain_sum", "config": {"nosuch": 1}, "entry": {"answer": "2"}}',
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("data_source", "truth"),
    [
        pytest.param(data_source, truth, id=f"{data_source}-{position}")
        for data_source, truths in MALFORMED.items()
        for position, truth in enumerate(truths)
    ],
)
def test_a_ground_truth_that_cannot_be_read_is_counted_and_never_ends_a_run(data_source, truth):
    for answer in ("2", str(truth)[:50]):
        response = f"<think>a</think><answer>{answer}</answer> \\boxed{{{answer}}}"
        counted = reward_input({}, None, from_loop={"rollout_metrics": {"searches": 1}})
        score = compute_score(data_source, response, truth, counted)
        assert (score["score"], score["acc"], score["gold_unparseable"], score["searches"]) == (0.0, 0.0, 1.0, 1.0)
        with pytest.raises(GroundTruthError):
            score_response(data_source, response, truth)


def test_what_the_agent_loop_counted_comes_back():
    given = reward_input({}, None, from_loop={"rollout_metrics": {"searches": 2, "answered": 1.0}})
    score = compute_score("kk_3ppl", RESPONSE, TRUTH, given)
    assert score == FULL_MARKS | {"searches": 2.0, "answered": 1.0}
    assert type(score["searches"]) is float
    assert compute_score("kk_3ppl", RESPONSE, TRUTH, pickle.loads(pickle.dumps(given))) == score


@pytest.mark.parametrize(
    "counts",
    ["abc", [1], 5, {"searches": None}, {"searches": "1"}, {"searches": float("nan")}, {"searches": 10**400},
     *({name: 1.0} for name in FULL_MARKS)],
)  # fmt: skip
def test_counts_that_are_not_finite_or_would_replace_the_score_are_an_error(counts):
    given = reward_input({}, None, from_loop={"rollout_metrics": counts})
    with pytest.raises(ValueError, match=r"rollout_metrics is .*correct the loop"):
        compute_score("kk_3ppl", RESPONSE, TRUTH, given)


def test_a_response_that_is_no_text_is_an_error():
    with pytest.raises(TypeError, match="decode the tokens"):
        compute_score("kk", b"bytes", TRUTH)


@pytest.mark.parametrize("reward", mutants.REWARDS)
@settings(max_examples=20, deadline=None)
@given(draw=st.randoms(use_true_random=False))
def test_a_mutant_is_paid_exactly_if_it_is_right(reward, draw):
    gold = mutants.generated(reward, draw)
    source, truth = mutants.scored_as(reward, gold)
    for right, rule, response in mutants.mutants(reward, gold):
        assert compute_score(source, response, truth)["acc"] == float(right), (rule, response)


@pytest.mark.parametrize("reward", mutants.REWARDS)
def test_a_reward_that_looks_for_the_answer_in_the_response_is_found_out(reward):
    """Each kind has wrong mutants that hold the right answer."""
    gold = mutants.generated(reward, random.Random(2))
    made = [*mutants.mutants(reward, gold)]
    [stated] = [response for right, rule, response in made if right and rule in ("as it is", "lines")]
    core = stated.removeprefix("<think></think><answer>").removesuffix("</answer>").removeprefix(r"So it is $\boxed{")
    core = core.removesuffix("}$.").splitlines()[0]
    assert {right for right, _, response in made if core in response} == {True, False}

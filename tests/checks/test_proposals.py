"""What a message proposes to type removes its own finding and adds none, typed as printed."""

import re

import pytest
import yaml

from tests.checks import test_apart, test_resume
from tests.checks.test_batches import SOUND, batch_findings
from tests.checks.test_rules import CASES
from tests.checks.test_switches import CASES as SWITCHED
from tests.checks.test_switches import GIVEN
from tests.conftest import composed
from tests.launch.launching import save_checkpoint
from verl_trgrpo.checks.algorithm import drift_findings
from verl_trgrpo.checks.check import check
from verl_trgrpo.checks.files import missing_files
from verl_trgrpo.checks.resume import loading_findings, resume_findings
from verl_trgrpo.checks.rules import RULES
from verl_trgrpo.checks.switches import SWITCHES
from verl_trgrpo.checks.tables import rule_findings
from verl_trgrpo.checks.view import TRAINING, RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import algorithm_settings

_OVERRIDE = r"(?:\+\+?|~)?[a-z_][\w.]*=(?:\[[^\]]*\]|[^\s;,\[]*[^\s;,.)\[])"
# "set A=1", "set A=1 B=2" and "use A=1": one proposal each; what follows ", or" is another.
_PROPOSED = re.compile(rf"\b(?:set|use) ({_OVERRIDE}(?:(?: and)? {_OVERRIDE})*)( in its place)?")


def proposals(message: str) -> list[tuple[list[str], bool]]:
    """Return overrides that a message proposes, those together that belong together, and whether in place of the reported one."""
    _, _, remedy = message.partition("; ")
    remedy = re.sub(r", or (?=[+~a-z_.]+=)", ", or set ", remedy)
    text = remedy.partition(", or ")[2] if "of examples/" in remedy else remedy
    return [(found.replace(" and ", " ").split(), bool(instead)) for found, instead in _PROPOSED.findall(text)]


_TO = re.compile(r"\b(?:set|and) ([\w.]+)(?= (?:and [\w.]+ )?to (a divisor of|a multiple of|at most|less than) (\d+))")
_NEAREST = {
    "a divisor of": lambda value, n: max(each for each in range(1, min(value, n) + 1) if n % each == 0),
    "a multiple of": lambda value, n: n * max(1, value // n),
    "at most": lambda _, n: n,
    "less than": lambda _, n: n - 1,
}


def fixes(message: str, view: RunView) -> list[list[str]]:
    """Return what a message proposes; of "to a divisor of 8" and its like the value that is nearest to the present one."""
    to = [f"{key}={_NEAREST[what](view[key], int(n))}" for key, what, n in _TO.findall(message)]
    return [more for more, _ in proposals(message)] + ([to] if to else [])


def names(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def typed(overrides: list[str], more: list[str], replaced: str) -> list[str]:
    """Return a command line with more settings, each in the place of the same one."""
    gone = {replaced, *map(names, more)}
    return [each for each in overrides if names(each) not in gone] + more


def check_proposals(finding, overrides: list[str]) -> None:
    """Type what a finding proposes: the finding goes, and no other place is reported."""
    before = {each.where for each in with_word(overrides)}
    for more, instead in proposals(finding.message):
        after = with_word(typed(overrides, more, finding.where if instead else ""))
        assert [each.message for each in after if each.message == finding.message or each.where not in before] == [], (
            more
        )


@pytest.mark.parametrize("name", CASES)
def test_a_proposal_of_a_rule_holds(name, tiny_run):
    overrides = [each.replace("{train}", f"{tiny_run}/train.parquet") for each in CASES[name][0]]
    [finding] = rule_findings(RunView(composed(overrides)), RULES)
    check_proposals(finding, overrides)


@pytest.mark.parametrize("name", SWITCHED)
def test_a_proposal_of_a_switch_holds(name):
    override = SWITCHED[name][0]
    overrides = added([override, *GIVEN.get(names(override), [])])
    for finding in rule_findings(RunView(composed(overrides)), SWITCHES):
        check_proposals(finding, overrides)


def added(overrides: list[str]) -> list[str]:
    """Return settings of the table as they are typed where the configuration has some of the keys already."""
    return [f"++{each.lstrip('+')}" if each.startswith("+") else each for each in overrides]


def of_tables(overrides: list[str]):
    return rule_findings(RunView(composed(overrides)), {**RULES, **SWITCHES})


def with_word(overrides: list[str]):
    """Return what tables, and the word of the algorithm, say of a run."""
    return [*of_tables(overrides), *drift_findings(RunView(composed(overrides)))]


def unsolved(finding, before, overrides: list[str], of=of_tables) -> list[str]:
    """Return a finding that is still there with `overrides`, and those that were not there before."""
    known = {each.message for each in before} - {finding.message}
    return [each.message for each in of(overrides) if each.message not in known]


# Algorithms with settings of their own: a filter and a reward, a mean of the loss, a KL in the reward.
@pytest.mark.parametrize("word", ["dapo", "gmpo", "reinforce_plus_plus"])
def test_a_proposal_of_a_switch_holds_with_every_algorithm(word):
    for override, _ in SWITCHED.values():
        start = [f"algorithm={word}", *added([override])]
        before = of_tables(start)
        for finding in before:
            for more, instead in proposals(finding.message):
                after = typed(start, more, finding.where if instead else "")
                assert unsolved(finding, before, after) == [], (override, more)


KL_OF_LOSS, KL_OF_REWARD = "actor_rollout_ref.actor.kl_loss_coef=0.1", "algorithm.kl_ctrl.kl_coef=0.1"
TOGETHER = [
    [KL_OF_LOSS, KL_OF_REWARD], [KL_OF_LOSS, KL_OF_REWARD, "algorithm.kl_ctrl.horizon=5"],
    ["actor_rollout_ref.actor.use_kl_loss=true", KL_OF_REWARD], ["algorithm.use_kl_in_reward=true", KL_OF_LOSS],
    ["algorithm=gspo", "actor_rollout_ref.actor.clip_ratio=0.3", "actor_rollout_ref.actor.clip_ratio_c=10"],
]  # fmt: skip


@pytest.mark.parametrize("overrides", TOGETHER)
def test_all_proposals_typed_at_once_agree(overrides):
    before, after = of_tables(overrides), overrides
    assert before
    for finding in before:
        proposed = proposals(finding.message)
        # Without a proposal the message says what to remove.
        [more, instead] = proposed[0] if proposed else ([], True)
        after = typed(after, more, finding.where if instead else "")
    assert of_tables(after) == []


@pytest.mark.parametrize(
    "overrides",
    [["critic.enable=true"], ["algorithm.adv_estimator=gae"],
     ["critic.enable=true", "algorithm.adv_estimator=gae", "actor_rollout_ref.rollout.n=1"]],
)  # fmt: skip
def test_a_proposal_of_a_run_without_a_critic_holds(overrides):
    [finding] = [each for each in missing_files(RunView(composed(overrides))) if each.where == "critic.model.path"]
    [(more, _)] = proposals(finding.message)
    after = typed(overrides, more, "")
    assert unsolved(finding, of_tables(overrides), after) == []
    assert "critic.model.path" not in {each.where for each in missing_files(RunView(composed(after)))}


ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
MICRO = (f"{ACTOR}.ppo", f"{ROLLOUT}.log_prob", f"{REF}.log_prob")
SIZED = (
    [f"{ACTOR}.ppo_mini_batch_size=128"],
    [f"{ACTOR}.ppo_mini_batch_size=24"],
    [f"{ACTOR}.ppo_mini_batch_size=2", f"{ROLLOUT}.n=3", *(f"{key}_micro_batch_size_per_gpu=1" for key in MICRO)],
    [f"{ACTOR}.ppo_micro_batch_size_per_gpu=7"],
    [f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=6"],
    [f"{REF}.log_prob_micro_batch_size_per_gpu=6"],
    [f"{ROLLOUT}.tensor_model_parallel_size=3"],
    [f"{ACTOR}.ulysses_sequence_parallel_size=3"],
    [f"{ACTOR}.optim.lr_warmup_steps=50", "trainer.total_training_steps=50"],
)


@pytest.mark.parametrize("plant", SIZED, ids=lambda plant: plant[0])
def test_a_proposal_of_a_size_holds(plant):
    overrides = [*SOUND, "data.train_files=none", *plant]
    view = RunView(composed(overrides))
    found = batch_findings(view)
    assert found and all(fixes(each.message, view) for each in found)
    for each in found:
        for more in fixes(each.message, view):
            after = batch_findings(RunView(composed(typed(overrides, more, ""))))
            assert {left.message for left in after} < {one.message for one in found}, more


APART = [(name, plant) for name in test_apart.MODULES for plant, *_ in test_apart.PLANTS]
APART += [("fully_async", plant) for plant in test_apart.REFUSED]


@pytest.mark.parametrize(("name", "plant"), APART)
def test_a_proposal_for_a_trainer_with_gpus_apart_holds(name, plant):
    view = test_apart.view_of(name, plant)
    before = test_apart.findings(view)
    for finding in before:
        for more in fixes(finding.message, view):
            after = test_apart.findings(test_apart.view_of(name, *typed([plant], more, "")))
            assert {each.message for each in after} < {each.message for each in before}, (finding.message, more)


DRIFTS = [
    (word, key, value) for word, base in (("tr_grpo_published", "tr_grpo"), ("tr_grpo", "grpo"), ("dapo", "grpo"))
    for key, value in algorithm_settings(word).items()
    if (base_value := algorithm_settings(base).get(key)) is not None and base_value != value and not isinstance(value, dict)
    for value in [base_value]
]  # fmt: skip


@pytest.mark.parametrize(("word", "key", "value"), DRIFTS)
def test_the_word_that_is_chosen_for_a_drift_removes_the_finding(word, key, value):
    overrides = [f"algorithm={word}", f"++{key}={value}"]
    before = with_word(overrides)
    for finding in before:
        for chosen in re.findall(r"choose (algorithm=\w+)", finding.message):
            assert unsolved(finding, before, typed(overrides, [chosen], ""), with_word) == []


# Two updates in a step; and what is asked of a run whose micro-batches have a fixed size.
UPDATES = [f"{ACTOR}.ppo_mini_batch_size=4", f"{ACTOR}.ppo_micro_batch_size_per_gpu=4"]
LOSS = f"{ACTOR}.policy_loss"
WHOLE = (
    ["algorithm.kl_ctrl.kl_coef=0.1"],
    [f"{ACTOR}.kl_loss_coef=0.1"],
    [f"{REF}.log_prob_max_token_len_per_gpu=999"],
    [f"{ACTOR}.use_kl_loss=true"],
    ["algorithm.rollout_correction.loss_type=reinforce"],
    [f"{ACTOR}.ppo_max_token_len_per_gpu=4096"],
    [f"{ACTOR}.ppo_max_token_len_per_gpu=4096", f"{ACTOR}.ppo_micro_batch_size_per_gpu=null", f"{ACTOR}.use_dynamic_bsz=true"],
    ["skip.rollout.enable=true"],
    ["skip.rollout.dump_dir=/x"],
    ["algorithm=tr_grpo_published"],
    ["algorithm=tr_grpo_published", f"{LOSS}.kl=plain"],
    ["algorithm=tr_grpo_published", f"{LOSS}.placement=outside"],
    ["reward.reward_manager.module.name=Foo"],
    ["algorithm=gmpo", f"{ACTOR}.use_dynamic_bsz=true", f"{ROLLOUT}.log_prob_use_dynamic_bsz=true"],
    ["algorithm=gmpo", f"{ACTOR}.ppo_micro_batch_size_per_gpu=2"],
    ["algorithm=tr_grpo", f"{LOSS}.placement=inside"],
    ["algorithm=cispo", "shaping=sigmoid", f"{LOSS}.placement=inside"],
    ["algorithm=tr_grpo", "shaping=power", f"{LOSS}.kl=literal", f"{LOSS}.shaping.lower=0", f"{ACTOR}.use_kl_loss=true",
     f"{REF}.log_prob_micro_batch_size_per_gpu=8"],
    ["algorithm=tr_grpo", "shaping=top_entropy", f"{LOSS}.prob_source=old"],
    ["algorithm=tr_grpo", "shaping=top_entropy"],
    ["algorithm=tr_grpo", f"{LOSS}.kl=scaled", f"{ACTOR}.use_kl_loss=true", f"{ACTOR}.kl_loss_type=mse",
     f"{REF}.log_prob_micro_batch_size_per_gpu=8"],
    ["algorithm=lopti", f"{ACTOR}.loss_agg_mode=seq-mean-token-mean"],
    ["algorithm=lopti", f"{LOSS}.loss_mode=gspo"],
    ["algorithm=tr_grpo", f"{LOSS}.shaping.lower=1", f"{LOSS}.shaping.upper=1"],
    ["mismatch=icepop", "algorithm.rollout_correction.rollout_is_threshold=2.0"],
    ["mismatch=tis", "shaping=vespo"],
)  # fmt: skip


@pytest.mark.parametrize("plant", WHOLE, ids=" ".join)
def test_a_proposal_holds_in_the_whole_check(sound_run, plant):
    start = typed([*sound_run, *UPDATES], plant, "")
    before = check(composed(start)).findings
    known = {each.message for each in before}
    for finding in before:
        for more, instead in proposals(finding.message):
            overrides = typed(start, more, finding.where if instead else "")
            after = {each.message for each in check(composed(overrides)).findings}
            assert finding.message not in after and after <= known, more


# A reward that veRL lacks, prompts of another model, prompts over the limit.
OF_DATA = (
    ["reward.custom_reward_function.path=null"],
    ["data.filter_overlong_prompts=false", "actor_rollout_ref.model.path=example/model"],
    ["data.filter_overlong_prompts=false", "data.max_prompt_length={shorter}"],
)


@pytest.mark.parametrize("plant", OF_DATA, ids=" ".join)
def test_a_proposal_of_a_check_of_data_holds(sound_run, plant):
    lengths = sorted(prompt_lengths(sound_run))
    start = typed(sound_run, [each.replace("{shorter}", str(lengths[-1] - 1)) for each in plant], "")
    before, sound = check(composed(start)).findings, check(composed(sound_run)).findings
    new = [each for each in before if each.message not in {one.message for one in sound}]
    proposed = [(each, more) for each in new for more, _ in proposals(each.message)]
    assert proposed
    for finding, more in proposed:
        after = check(composed(typed(start, more, ""))).findings
        assert finding.message not in {each.message for each in after}, more
        assert errors_of(after) <= errors_of(before), more


def prompt_lengths(overrides: list[str]) -> list[int]:
    view = RunView(composed(overrides))
    [file] = view.files(TRAINING).values()
    return view.prompts.lengths(file.read(["prompt"]))


def errors_of(findings) -> set[str]:
    return {each.message for each in findings if each.level is Level.ERROR}


def proposals_of_resumed(message: str) -> list[dict[str, object]]:
    """Return settings that a message about a checkpoint proposes, by key; another run from its weights has no checkpoint."""
    over = [[each] for each in re.findall(r"start over with (trainer\.resume_mode=disable)", message)]
    words = [more for more, _ in proposals(message) if "start another run" not in message] + over
    return [
        {name: yaml.safe_load(value) for name, _, value in (each.partition("=") for each in more)} for more in words
    ]


@pytest.mark.parametrize("name", [name for name, case in test_resume.CASES.items() if case[3] is not Level.NOT_CHECKED])
def test_a_proposal_of_a_resumed_run_holds(tmp_path, name):
    kinds, changes, *_ = test_resume.CASES[name]
    checkpoint = save_checkpoint(tmp_path, 2, ranks=2, kinds=kinds)
    if not kinds:
        test_resume.add_whole_model(checkpoint / "actor" / "huggingface")
    [finding] = loading_findings(test_resume.view_of(tmp_path, **changes))
    proposed = proposals_of_resumed(finding.message)
    assert proposed or finding.level is not Level.ERROR
    for more in proposed:
        after = loading_findings(test_resume.view_of(tmp_path, **{**changes, **more}))
        assert finding.message not in {each.message for each in after} and errors_of(after) == set(), more


@pytest.mark.parametrize("name", [name for name, (_, found) in test_resume.SAVING.items() if found])
def test_a_proposal_of_what_is_saved_holds(tmp_path, name):
    changes = {"trainer.save_freq": 1, **test_resume.SAVING[name][0]}
    [finding] = resume_findings(test_resume.view_of(tmp_path, **changes))
    for more in proposals_of_resumed(finding.message):
        assert resume_findings(test_resume.view_of(tmp_path, **{**changes, **more})) == [], more


def test_most_rules_propose_something_to_type(tiny_run):
    texts = [rule.findings(RunView(composed([each.replace("{train}", f"{tiny_run}/train.parquet") for each in CASES[name][0]])))
             for name, rule in RULES.items()]  # fmt: skip
    assert sum(bool(proposals(found[0].message)) for found in texts) > 0.8 * len(RULES)

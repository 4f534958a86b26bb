"""What is wrong with overrides is named at once, and what is suggested can be typed."""

import re
import shlex

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from tests.conftest import composed
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import compose, group_names
from verl_trgrpo.runs.keys import OLD_SECTIONS, flat
from verl_trgrpo.runs.overrides import malformed, setting_problems

GOOD = [
    "trainer.experiment_name=first",
    "data.train_files=[a,b]",
    "+trainer.mine={x: 1}",
    "~trainer.nnodes",
    "algorithm=tr_grpo",
]
# Each token of Hydra's grammar, and what a shell or a habit leaves behind.
TOKENS = [*"=[]{}():,'\"`;&|<>!~#$%\\+- ", "$1", "${", "é", "a=b", "+algorithm=tr_grpo"]


def mutants():
    for word in GOOD:
        for place in range(len(word) + 1):
            yield from (word[:place] + token + word[place:] for token in TOKENS)


def hydra_reads(word):
    try:
        return not OverridesParser.create().parse_override(word).is_sweep_override()
    except (HydraException, ValueError):
        return False


def test_every_word_that_hydra_cannot_read_is_named_with_a_quoting_that_it_reads():
    broken = [word for word in dict.fromkeys(mutants()) if not hydra_reads(word)]
    assert len(broken) > 500
    for word, message in malformed(broken).items():
        assert message.startswith(f"{word}: "), message
        if quoting := re.search(r"(?:this value; |of its own, or )write (.*)$", message):
            [typed] = shlex.split(quoting[1])
            parsed = OverridesParser.create().parse_override(typed)
            assert parsed.value() == word.partition("=")[2], message
    assert set(malformed(broken)) == set(broken)


@pytest.mark.parametrize(
    "word", [*GOOD, "trainer.project_name='my run (7b)'", "a.b=", "a.b=${trainer.nnodes}", "a.b=1e-6"]
)
def test_a_good_word_is_no_problem(word):
    assert malformed([word]) == {}


@pytest.mark.parametrize(
    "word", ["trainer.project_name=$1", "data.train_files=$DATA/x.parquet", "=3", "--x=3", "--cfg"]
)
def test_what_a_shell_or_another_program_means_is_not_an_override(word):
    assert word in malformed([word])[word]


def typo(key):
    """The key without the middle letter of its last part."""
    section, _, name = key.rpartition(".")
    return f"{section}.{name[: len(name) // 2]}{name[len(name) // 2 + 1 :]}"


def test_what_is_suggested_can_be_typed():
    config = composed(["algorithm=tr_dapo"]).config
    keys = [
        key for key in flat(config) if "." in key and not key.startswith(OLD_SECTIONS) and not key.endswith("_target_")
    ]
    keys = [key for key in keys if len(key.rpartition(".")[2]) > 4]
    groups, followed = group_names(), 0
    for key in keys[::40]:
        words = [f"{typo(key)}=1", f"+{key}=1", f"~{key}x", f"{key}x=1"]
        for message in setting_problems(config, words, groups):
            meant = re.search(r"did you mean (\S+)\?|write (\S+)=\.\.\. without", message)
            assert meant, message
            assert setting_problems(config, [f"{meant[1] or meant[2]}=null"], groups) == [], message
            followed += 1
    assert followed > 3 * len(keys[::40])


@pytest.mark.parametrize("section", OLD_SECTIONS)
def test_a_key_of_an_old_section_gets_a_plus_only_where_its_place_is_not_there(section):
    key = "reward_model.overlong_buffer.len"
    for algorithm, there in (("tr_dapo", True), ("tr_grpo", False)):
        config = composed([f"algorithm={algorithm}"]).config
        [message] = setting_problems(config, [f"{key}=3"], [])
        place = "reward.reward_kwargs.overlong_buffer_cfg.len?"
        assert f"did you mean {'' if there else '+'}{place}" in message


def test_another_thing_is_not_suggested():
    config = composed([]).config
    [message] = setting_problems(
        config, ["actor_rollout_ref.rollout.multi_turn.interaction_config_path=x"], group_names()
    )
    assert "tool_config_path" not in message


def test_the_end_of_a_key_is_completed_and_to_the_model_that_is_trained():
    config = composed([]).config
    keys = [key for key in flat(config) if key.startswith(("actor_rollout_ref.actor.", "actor_rollout_ref.rollout."))]
    for key in keys[::30]:
        parts = key.split(".")
        for end in (".".join(parts[i:]) for i in range(1, len(parts) - 1)):
            [message] = setting_problems(config, [f"{end}=1"], group_names())
            meant = re.search(r"did you mean (\S+)\?", message)
            assert meant and meant[1].endswith(f".{end}"), message
        assert "did you mean critic." not in "".join(setting_problems(config, [f"{parts[-1]}=1"], group_names()))
    assert "mean critic.optim.lr?" in setting_problems(config, ["critic.lr=1"], group_names())[0]


@pytest.mark.parametrize(
    "form", ["trainer.{}=1", "trainer.a{}=1=", "{}.a=1", "trainer{}.nnodes=1=", "trainer.nnodes{}", "{}"]
)
def test_no_character_of_a_word_hides_the_other_problems_or_is_an_error_of_hydra_s_own(form):
    words = [form.format(char) for char in "é:/@-. $~+[{(,;\n\x00\U0001f600"]
    with pytest.raises(InvalidInputError) as caught:
        compose(overrides=[*words, "trainer.nothing=1"])
    assert any("trainer.nothing" in message for message in caught.value.messages)
    assert "Exception" not in " ".join(caught.value.messages)
    for message in malformed(words).values():
        if suggested := re.search(r"override; write (\S+)\.\.\.$", message):
            assert malformed([f"{suggested[1]}1"]) == {}, message


@pytest.mark.parametrize("group", ["algorithm=tr_grpo", "shaping=power", "platform=cpu"])
def test_the_plus_before_a_group_that_exists_is_what_the_message_names(group):
    compose(overrides=[group])
    with pytest.raises(InvalidInputError, match="without the plus"):
        compose(overrides=[f"+{group}"])


@pytest.mark.parametrize("group", ["algorithm", "shaping", "platform", "critic"])
def test_a_group_that_is_left_out_is_no_problem_beside_another(group):
    for word, named in ((f"~{group}", False), (f"~{group}=nothing", True)):
        with pytest.raises(InvalidInputError) as caught:
            compose(overrides=[word, "trainer.nothing=1"])
        assert any(group in message for message in caught.value.messages) is named, caught.value.messages
        assert len(caught.value.messages) == 1 + named


def test_problems_of_all_kinds_are_named_in_one_round():
    words = [
        "trainer.project_name=a=b",
        "data.x=x;y",
        "algorithm=tr_dap",
        "shaping=power",
        "platform=gpu",
        "trainer.nnode=1",
        "+trainer.nnodes=2",
        "~trainer.nothing",
        "~trainer.project_name=other",
        "trainer.logger=console,wandb",
    ]
    with pytest.raises(InvalidInputError) as caught:
        compose(overrides=words)
    named = " ".join(caught.value.messages)
    assert all(word.partition("=")[0] in named for word in words if word != "shaping=power"), named
    assert len(caught.value.messages) == 10  # data.x is both unreadable and unknown

"""What is wrong with overrides is named at once, and what is suggested can be typed."""

import re
import shlex

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from tests.conftest import composed
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.runs.compose import _verl_configs, compose, group_names
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
    groups, followed = group_names([]), 0
    for key in keys[::40]:
        words = [f"{typo(key)}=1", f"+{key}=1", f"~{key}x", f"{key}x=1"]
        for message in setting_problems(config, words, groups):
            meant = re.search(r"did you mean (\S+)\?|write (\S+)=\.\.\. without", message)
            assert meant, message
            assert setting_problems(config, [f"{meant[1] or meant[2]}=null"], groups) == [], message
            followed += 1
    assert followed > 3 * len(keys[::40])


# Hydra's own root, and a group whose place takes one of its options alone.
SKIPPED = ("hydra", "algorithm@algorithm.rollout_correction")


def groups_of(source):
    """All groups that a configuration has or could have, Hydra's own included: the options, the one in force first."""
    with hydra.initialize_config_dir(str(_verl_configs()), version_base=None):
        loader = GlobalHydra.instance().config_loader()
        chosen = hydra.compose(source, return_hydra_config=True).hydra.runtime.choices
        every = dict.fromkeys([*loader.list_groups(""), *chosen])
        names = [name for name in every if name not in SKIPPED and ".." not in name]
        options = {name: loader.get_group_options(name.partition("@")[0]) for name in names}
    return {name: [*filter(None, [chosen.get(name)]), *known] for name, known in options.items() if known}


REMEDY = re.compile(
    r"did you mean (?P<meant>\S+)\?|choose one of (?P<one>[^,]+)|write (?P<write>\S+)$|such as (?P<first>\S+)$"
    r"|(?P<bare>without the plus)|(?P<out>leave this word out)|\((?P<plus>\+\S+)=\.\.\. adds it"
)


def corrections(word, messages, groups):
    """Yield the overrides that the messages of one round name in place of a word; none where it is to be left out."""
    sign, key, value = re.match(r"([+]*)([^=]*)=(.*)", word).groups()
    remedies = []
    for message in messages:
        found = [match.groupdict() for match in REMEDY.finditer(message)]
        assert found, f"no remedy: {message}"
        if "does not exist" in message and (option := found[0]["meant"] or found[0]["one"]):
            value = option
            remedies += [] if len(messages) > 1 else [{"write": f"{sign}{key}={value}"}]
        else:
            remedies += found
    for remedy in remedies:
        if other := remedy.get("meant") or remedy.get("plus"):
            known = groups.get(other.lstrip("+"), [value])
            yield [f"{other}={value if value in known else known[0]}"]
        elif not remedy.get("out"):
            yield [remedy.get("write") or f"{key}={value}", *([f"{key}={value}"] if remedy.get("first") else [])]


@pytest.mark.parametrize(("source", "start"), [("trgrpo_trainer", 0), ("ppo_trainer", 5)])
def test_what_is_suggested_for_a_group_composes(source, start):
    groups, refused = groups_of(source), 0
    words = []
    for name, (option, *_) in groups.items():
        package = name.rpartition("@")[2]
        words += [
            f"{name}={option}", f"+{name}={option}", f"{name}={option[:-1]}", f"+{name}={option}x", f"{name}=x",
            f"{name.upper()}={option}", f"{name}={option.upper()}", f"{package.replace('.', '/')}={option}", f"{name}x={option}",
            f"{package}/{option}=x", f"{name.partition('@')[0]}={option}",
        ]  # fmt: skip
    for word in words[start::45]:  # of each form some groups: composing takes a quarter of a second
        try:
            compose(source, [word])
        except InvalidInputError as error:
            refused += 1
            for corrected in corrections(word, error.messages, groups):
                compose(source, corrected)
    assert refused > len(words) // 90


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
        config, ["actor_rollout_ref.rollout.multi_turn.interaction_config_path=x"], group_names([])
    )
    assert "tool_config_path" not in message


def test_the_end_of_a_key_is_completed_and_to_the_model_that_is_trained():
    config = composed([]).config
    keys = [key for key in flat(config) if key.startswith(("actor_rollout_ref.actor.", "actor_rollout_ref.rollout."))]
    for key in keys[::30]:
        parts = key.split(".")
        for end in (".".join(parts[i:]) for i in range(1, len(parts) - 1)):
            [message] = setting_problems(config, [f"{end}=1"], group_names([]))
            meant = re.search(r"did you mean (\S+)\?", message)
            assert meant and meant[1].endswith(f".{end}"), message
        assert "did you mean critic." not in "".join(setting_problems(config, [f"{parts[-1]}=1"], group_names([])))
    assert "mean critic.optim.lr?" in setting_problems(config, ["critic.lr=1"], group_names([]))[0]


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


def test_a_key_whose_value_is_refused_is_not_unknown():
    with pytest.raises(InvalidInputError) as raised:
        compose(overrides=["hydra.run.dir=<place>/outputs", "trainer.nosuch=1"])
    [unreadable, unknown] = raised.value.messages
    assert "Hydra cannot read this value" in unreadable and unknown.startswith("trainer.nosuch: unknown key")


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


def test_fifty_foreign_keys_are_one_problem_with_an_answer_for_each():
    words = [*(f"walker.option_{number}=1" for number in range(49)), "actor_rollout_ref.rollout.n_val=8"]
    with pytest.raises(InvalidInputError) as raised:
        compose("trgrpo_trainer", words)
    assert len(raised.value.messages) == len(words)
    _, *answers = str(raised.value).splitlines()
    assert [answer.split(":")[0].strip() for answer in answers] == [word.partition("=")[0] for word in words]
    assert "val_kwargs.n" in answers[-1] and all("no counterpart is known" in answer for answer in answers[:-1])

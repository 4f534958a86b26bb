"""A script that people have is read up to the arguments of veRL's trainer, and what is not read is named with its line."""

from pathlib import Path

import pytest

from verl_trgrpo.common.findings import InvalidInputError, Level
from verl_trgrpo.runs.compose import compose
from verl_trgrpo.shell.starts import main_arguments, read_script

MAIN = "python3 -m verl.trainer.main_ppo"
SEED, NODES = "data.seed=1", "trainer.nnodes=2"
# Scripts of the shapes that people publish, and the overrides that the trainer gets.
SHAPES = {
    "plain": (f"set -x\n{MAIN} \\\n    {SEED} \\\n    data.val_files=['a','b'] $@", [SEED, "data.val_files=[a,b]"]),
    "logged": (f"echo start > log; {MAIN} {SEED} 2>&1 | tee log.txt", [SEED]),
    "in the background": (f"nohup {MAIN} {SEED} > log 2>&1 &", [SEED]),
    "submitted": (f'ray job submit --address="$A" --runtime-env=env.yaml -- {MAIN} {SEED}', [SEED]),
    "in another shell": (f"S=1\nsrun bash -c \"{MAIN} data.seed=$S 'data.val_files=[a,b]'\"", [SEED, "data.val_files=[a,b]"]),
    "an array": (f'D=(\n  {SEED}\n  # why\n)\n[ -n "$D" ] && D+=({NODES})\n{MAIN} "${{D[@]}}" "$@"', [SEED, NODES]),
    "one text": (f'A="\n  {SEED} \\\n  {NODES}"\n{MAIN} $A', [SEED, NODES]),
    "a command in a variable": (f"CMD='{MAIN} {SEED}'\neval $CMD", [SEED]),
    "by its file": (f"python verl/trainer/main_ppo.py {SEED}", [SEED]),
    "printed only": (f"{MAIN} --cfg job {SEED}", [SEED]),
    "an environment": (f"VLLM_USE_V1=1 PYTHONUNBUFFERED=1 uv run {MAIN} {SEED}", [SEED]),
    "a function": (f'train() {{ {MAIN} data.seed=$1 "${{@:2}}"; }}\ntrain 1 {NODES}', [SEED, NODES]),
}  # fmt: skip


def script(folder, text):
    path = Path(folder, "train.sh")
    path.write_text(text)
    return path


def read(folder, text, *arguments, **environment):
    return read_script(script(folder, text), arguments, {"HOME": "/home/me", **environment})


@pytest.mark.parametrize(("text", "overrides"), SHAPES.values(), ids=SHAPES)
def test_the_trainers_arguments_are_read(text, overrides, tmp_path):
    [start] = read(tmp_path, text)
    assert (start.source, list(start.overrides), start.findings) == ("ppo_trainer", overrides, ())


def test_every_start_of_a_sweep_is_read(tmp_path):
    starts = read(tmp_path, f"for seed in 1 2 3; do\n  {MAIN} data.seed=$seed\ndone")
    assert [start.overrides for start in starts] == [(f"data.seed={seed}",) for seed in (1, 2, 3)]


def test_words_behind_the_script_reach_what_takes_them(tmp_path):
    [start] = read(
        tmp_path,
        f"ENGINE=${{1:-vllm}}; shift; {MAIN} actor_rollout_ref.rollout.name=$ENGINE $@",
        "sglang",
        "+algorithm=tr_grpo",
    )
    assert start.overrides == ("actor_rollout_ref.rollout.name=sglang", "+algorithm=tr_grpo")
    [start] = read(tmp_path, f"{MAIN} data.seed=1 $@", "algorithm=tr_grpo", "--config-name=trgrpo_trainer")
    assert (start.source, start.overrides) == ("trgrpo_trainer", ("data.seed=1", "algorithm=tr_grpo"))


def test_words_that_getopts_takes_are_no_error(tmp_path):
    [start] = read(tmp_path, f'while getopts "n:" o; do N=$OPTARG; done\n{MAIN} data.seed=1', "-n", "3")
    assert not start.findings


def test_words_that_the_script_does_not_hand_on_are_an_error(tmp_path):
    [start] = read(tmp_path, f"{MAIN} data.seed=1", "+algorithm=tr_grpo")
    [finding] = start.findings
    assert finding.level is Level.ERROR and 'write "$@" as the last word' in finding.message


@pytest.mark.parametrize(
    ("text", "level", "line", "named"),
    [
        (f"\n{MAIN} data.seed=$SEED", Level.NOT_CHECKED, 2, "$SEED is not set"),
        (f"N=run-$(date)\n\n{MAIN} trainer.experiment_name=$N", Level.NOT_CHECKED, 1, "`date` is not run"),
        (f"{MAIN} data.seed=1 \\\n# no \\\n  trainer.nnodes=2", Level.ERROR, 3, "is a command of its own"),
        (f"A=1\n{MAIN} \\\r\n data.seed=1\r\n", Level.ERROR, 2, "type sed -i 's/\\r$//' "),
        (f"{MAIN} data.seed=1\nfi", Level.NOT_CHECKED, 2, "cannot be read as bash"),
        (f"{MAIN} data.seed=1 --seed 3", Level.ERROR, 1, "unrecognized arguments: --seed"),
        (f"cd /elsewhere\n{MAIN} data.seed=1", Level.NOT_CHECKED, 2, "relative paths were sought in"),
        (f"export VERL_USE_EXTERNAL_MODULES=mine\n{MAIN} data.seed=1", Level.NOT_CHECKED, 2, "before this command"),
        ("python3 -m recipe.dapo.main_dapo actor_rollout_ref.rollout.n=4", Level.ERROR, 1, "start verl.trainer.main_ppo"),
        (f"{MAIN} data.seed=1\nwhile true; do A=1; done", Level.NOT_CHECKED, 2, "what follows was not read"),
    ],
)  # fmt: skip
def test_what_is_not_read_is_named_with_its_line(text, level, line, named, tmp_path):
    [start] = read(tmp_path, text)
    [finding] = start.findings
    assert finding.level is level
    assert f"train.sh, line {line}: " in finding.message and named in finding.message


def test_the_keys_of_values_that_are_not_known_are_kept(tmp_path):
    [start] = read(tmp_path, f"{MAIN} data.train_files=$1/train.parquet +trainer.nnodes=$N data.seed=1 $REST")
    assert start.unread == {"data.train_files", "trainer.nnodes"} and start.overrides == ("data.seed=1",)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("echo python3 -m verl.trainer.main_ppo a=1", "starts no training"),
        ("bash scripts/other.sh", "line 1: calls scripts/other.sh; give that script"),
        ("torchrun -m verl.trainer.sft_trainer data.seed=1", "only the arguments of verl.trainer.main_ppo are checked"),
        ("if x; then python3 -m verl", "cannot be read as bash"),
        (f"{MAIN} +a.url=http://me:secret@host", "has an address with a password"),
    ],
)  # fmt: skip
def test_a_script_without_a_training_says_what_it_has(text, named, tmp_path):
    with pytest.raises(InvalidInputError) as raised:
        read(tmp_path, text)
    assert named in str(raised.value) and "secret@" not in str(raised.value)


def test_files_that_are_no_script_are_refused(tmp_path):
    for content in (b"\xff\xfe\x00", b"\0" * 9):
        path = tmp_path / "train.sh"
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match="not a text file"):
            read_script(path)
    with pytest.raises(InvalidInputError, match="does not exist"):
        read_script(tmp_path / "no.sh")


def test_a_configuration_of_the_scripts_own_is_a_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("defaults: [ppo_trainer]\n")
    [start] = read(tmp_path, f"{MAIN} --config-path={tmp_path} --config-name=mine data.seed=1")
    assert (start.source, start.overrides) == (tmp_path / "mine.yaml", ("data.seed=1",))


@pytest.mark.parametrize(
    ("name", "source"), [("mine", "ppo_trainer"), ("ppo_megatron_trainer", "ppo_megatron_trainer")]
)
def test_a_configuration_that_is_not_here_is_named_and_the_arguments_are_read(tmp_path, name, source):
    [start] = read(tmp_path, f"{MAIN} --config-path=$PWD/none --config-name={name} data.seed=1")
    assert (start.source, start.overrides) == (source, ("data.seed=1",))
    [finding] = start.findings
    assert finding.level is Level.ERROR and f"none/{name}.yaml is not here" in finding.message


def test_a_script_of_easyr1_is_read(tmp_path):
    [start] = read(tmp_path, "python3 -m verl.trainer.main config=a.yaml worker.actor.global_batch_size=8")
    assert start.overrides == ("config=a.yaml", "worker.actor.global_batch_size=8")
    assert "starts verl.trainer.main, which is not here" in start.findings[0].message


def test_arguments_are_those_that_hydra_reads():
    assert main_arguments(["a=1", "--config-name", "trgrpo_trainer"]) == ("trgrpo_trainer", ["a=1"])
    for folder in ([], ["--config-path=config"]):  # Hydra takes the name with and without its suffix
        assert main_arguments([*folder, "--config-name=ppo_megatron_trainer.yaml"])[0] == "ppo_megatron_trainer"
    with pytest.raises(ValueError, match="unrecognized arguments: b=2"):
        main_arguments(["a=1", "--cfg", "job", "b=2"])


ASYNCHRONOUS = "experimental.fully_async_policy.fully_async_main"


@pytest.mark.parametrize("package", ["verl.", "recipe."])
def test_of_another_trainer_of_verl_the_keys_are_those_of_its_own_configuration(tmp_path, package):
    module = f"{package}{ASYNCHRONOUS if package == 'verl.' else ASYNCHRONOUS.removeprefix('experimental.')}"
    words = "actor_rollout_ref.rollout.n=8 async_training.partial_rollout=false rollout.n_gpus_per_node=4"
    [start] = read(tmp_path, f"python -m {module} {words} async_training.nosuch=1")
    assert start.trainer.module == f"verl.{ASYNCHRONOUS}" and Path(start.source).stem == "fully_async_ppo_trainer"
    levels = [finding.level for finding in start.findings]
    assert levels == [Level.ERROR, Level.NOT_CHECKED][package == "verl." :]
    assert compose(start.source, start.overrides[:-1]).config.async_training.partial_rollout is False
    with pytest.raises(InvalidInputError) as raised:
        compose(start.source, start.overrides)
    assert [message.partition(":")[0] for message in raised.value.messages] == ["async_training.nosuch"]
    [start] = read(tmp_path, f"python -m {module} {words} --config-name=fully_async_ppo_megatron_trainer")
    assert Path(start.source).stem == "fully_async_ppo_megatron_trainer"


def test_a_script_that_ends_before_its_training_says_where(tmp_path):
    with pytest.raises(InvalidInputError) as raised:
        read(tmp_path, f'if [ -z "$MODEL" ]; then\n  exit 1\nfi\n{MAIN} {SEED}')
    assert "line 2: ends the script" in str(raised.value)
    [start] = read(tmp_path, f'if [ -z "$MODEL" ]; then\n  exit 1\nfi\n{MAIN} {SEED}', MODEL="m")
    assert start.overrides == (SEED,)


def test_what_a_program_prints_is_not_a_line_that_cannot_be_read(tmp_path):
    [start] = read(tmp_path, f'eval "$(conda shell.bash hook)"\n{MAIN} {SEED}')
    assert (start.overrides, start.findings) == ((SEED,), ())

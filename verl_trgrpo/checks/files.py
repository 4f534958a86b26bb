"""Check that the files which a run names exist: data, models, Python files, the checkpoint to resume from; open a local model."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from omegaconf import ListConfig

from verl_trgrpo.checks.view import CRITIC, DATA, DATA_SET, TOKENIZER, RunView
from verl_trgrpo.common.files import not_there
from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.common.foreign import ForeignFileError, check_model_directory
from verl_trgrpo.common.import_path import EXTERNAL_MODULES, OWN_MODULE_FIX, external_modules
from verl_trgrpo.common.text import did_you_mean, first_line
from verl_trgrpo.common.typed import read_typed
from verl_trgrpo.data.prompts import TOOLS, ModelConfig, ask_model, model_facts
from verl_trgrpo.data.rows import path_problem
from verl_trgrpo.runs.keys import MANAGER, MODEL, MODEL_PATH, REWARD, REWARD_MODEL, ROLLOUT

RESUME_PATH = "trainer.resume_from_path"

_CHECKPOINT_NAME = re.compile(r"global_step_[0-9]+")
_TAKEN_FOR_HUB = "no such directory here, so veRL takes this for a name on a hub"
# Keys that name a Python file, or a module behind pkg://.
_PYTHON_FILES = (
    f"{REWARD}.path",
    f"{MANAGER}.module.path",
    DATA_SET,
    "trainer.v1.sampler.custom_sampler.path",
)


def missing_files(view: RunView) -> list[Finding]:
    """Check that every file and directory that a run names exists, without importing veRL, torch or pyarrow.

    Values of the wrong type are left to other checks.
    """
    level = Level.ERROR if view.need_files else Level.NOT_CHECKED
    findings = []
    for key in DATA:
        if not view.names(key):
            more = "; veRL opens it in every run, a few rows will do where none validates" if "val" in key else ""
            findings.append(Finding.error(key, f"{key}: names no file; give a Parquet file{more}"))
        for name in view.names(key):
            if name.startswith("~") and (whole := Path(name).expanduser()).is_file():
                findings.append(Finding.error(key, f"{key}={name}: veRL does not expand ~ here; write {whole}"))
        for path in view.local(key):
            if problem := path_problem(path, "build the file (docs/data.md), or correct the path"):
                findings.append(Finding(Level.ERROR if path.exists() else level, key, f"{key}={problem}"))
    to_model = "set {0} to a model directory or a hub name"
    fixes = {MODEL_PATH: to_model, TOKENIZER: "correct the path, or remove {0}"}
    if view[f"{REWARD_MODEL}.enable"]:
        fixes[f"{REWARD_MODEL}.model_path"] = to_model
    if view.needs_critic:
        fixes[CRITIC] = f"{to_model}, or set {' '.join(_without_critic(view))}"
    for key, fix in fixes.items():
        name = view[key]
        if isinstance(name, str) and looks_local(name) and not Path(name).expanduser().is_dir():
            whose = "" if key in view.changed else ", a default that the run does not set"
            findings.append(view.finding(key, f"is not a directory{whose}; {fix.format(key)}", level))
    key = "trainer.default_local_dir"
    if isinstance(view[key], str) and Path(view[key]).is_file():
        findings.append(view.finding(key, "is a file; name a directory"))
    key, adapter = f"{MODEL}.lora_adapter_path", view[f"{MODEL}.lora_adapter_path"]
    if adapter and "://" not in str(adapter) and not Path(str(adapter), "adapter_config.json").expanduser().is_file():
        findings.append(view.finding(key, "has no adapter_config.json; name the directory of an adapter"))
    tools = (f"{section}.{name}_path" for section in (TOOLS, "data") for name in ("tool_config", "function_tool"))
    for key in tools:  # veRL's data set goes on without tools, whose files it cannot read
        if key in view.changed and isinstance(view[key], str) and not Path(view[key]).is_file():
            findings.append(view.finding(key, "does not exist; correct the path, or remove this setting"))
    for key in _PYTHON_FILES:
        place = view[key]
        if not isinstance(place, str) or not place or "://" in place.removeprefix("pkg://"):
            continue
        module = place.removeprefix("pkg://")
        if module != place and not _importable(module):
            findings.append(view.finding(key, f"does not exist; correct the path, or remove {key}"))
        elif module == place and not Path(place).expanduser().is_file():
            findings.append(Finding.error(key, f"{key}={not_there(Path(place), f'correct the path, or remove {key}')}"))
    return findings + _resume_path_findings(view)


def _without_critic(view: RunView) -> Iterator[str]:
    """Yield the settings with which a run that has a critic has none."""
    if view["critic.enable"]:
        yield "critic.enable=null"
    if view["algorithm.adv_estimator"] == "gae":
        yield "algorithm.adv_estimator=grpo"
        if view[f"{ROLLOUT}.n"] == 1:
            yield f"{ROLLOUT}.n=5"


def module_findings() -> list[Finding]:
    """Check that the modules of the user's own exist which veRL imports when it is imported itself."""
    return [
        Finding.error(EXTERNAL_MODULES, f"{EXTERNAL_MODULES}={name}: no such module; {OWN_MODULE_FIX}")
        for name in external_modules()
        if not _importable(name)
    ]


def _resume_path_findings(view: RunView) -> list[Finding]:
    if view["trainer.resume_mode"] != "resume_path":
        return []
    place = view[RESUME_PATH]
    if not place or not Path(str(place)).is_dir():  # veRL does not expand a ~
        reason = "trainer.resume_mode=resume_path needs a directory; name a global_step_N"
    elif not _CHECKPOINT_NAME.fullmatch(str(place).rpartition("/")[2]):  # a slash at the end would stop veRL, too
        reason = "veRL reads the step from the name; the path must end in global_step_N"
    else:
        return []
    return [view.finding(RESUME_PATH, reason)]


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a package above it does not exist; there is no name
        return False


def looks_local(name: str) -> bool:
    """Return True for a model's name that is a path; a name with at most one slash may be on a hub."""
    return name.startswith((".", "~", "/")) or name.count("/") > 1


def model_findings(view: RunView) -> list[Finding]:
    """Check the local directories of the policy and of the reward model; nothing is downloaded.

    Code of a directory is executed where ``model.trust_remote_code`` allows it, and not otherwise.
    """
    if refused := [*_refused_directories(view)]:
        return refused
    name, trusted = str(view[MODEL_PATH]), bool(view[f"{MODEL}.trust_remote_code"])
    path = Path(name).expanduser()
    tokenizer = Path(str(view[TOKENIZER] or name)).expanduser()
    findings = []
    if not path.is_dir() and not looks_local(name):
        findings.append(
            view.finding(MODEL_PATH, f"{_TAKEN_FOR_HUB}; nothing is downloaded to check it", Level.NOT_CHECKED)
        )
    critic = str(view[CRITIC])
    if view.needs_critic and not looks_local(critic) and not Path(critic).is_dir():
        reason = f"{_TAKEN_FOR_HUB}; the critic's settings were not checked by veRL's own classes"
        findings.append(view.finding(CRITIC, reason, Level.NOT_CHECKED))
    errors = _code_errors(path, tokenizer, trusted, MODEL_PATH)
    # Opening a model that brings code of its own would fail for the same reason.
    if not errors and path.is_dir() and not (path / "config.json").is_file():
        errors = [f"{MODEL_PATH}={name}: has no config.json; give the directory of a whole model"]
    elif not errors and path.is_dir():
        errors = _config_errors(path, view) or _tokenizer_errors(path, tokenizer, view)
        findings += [] if errors else _adapter_findings(view)
    findings += [Finding.error(MODEL_PATH, error) for error in errors]
    judge = view[f"{REWARD_MODEL}.model_path"]
    if judge and view[f"{REWARD_MODEL}.enable"]:
        key, path = f"{REWARD_MODEL}.model_path", Path(str(judge)).expanduser()
        findings += [Finding.error(key, error) for error in _code_errors(path, path, trusted, key)]
    return findings


def _refused_directories(view: RunView) -> Iterator[Finding]:
    """Look through the directories that veRL or this check will open."""
    used = {CRITIC: view.needs_critic, f"{REWARD_MODEL}.model_path": view[f"{REWARD_MODEL}.enable"]}
    for key in (
        MODEL_PATH,
        TOKENIZER,
        f"{MODEL}.hf_config_path",
        f"{MODEL}.lora_adapter_path",
        *filter(used.get, used),
    ):
        try:
            check_model_directory(Path(str(view[key] or "-")).expanduser())
        except ForeignFileError as error:
            yield Finding.error(key, f"{key}: {error}")


def _code_errors(model: Path, tokenizer: Path, trusted: bool, key: str) -> list[str]:
    """Refuse a tokenizer that brings Python code, unless that was allowed.

    ``model.trust_remote_code=false`` does not prevent its execution: the workers of veRL's reward loop open the tokenizer with
    ``trust_remote_code=True`` whatever the configuration says.
    """
    try:
        own, beside, of_model = (
            read_typed(path, ModelConfig)
            for path in (tokenizer / "tokenizer_config.json", tokenizer / "config.json", model / "config.json")
        )
    except ForeignFileError as error:
        return [f"{key}={tokenizer}: {error}"]
    maps = [(own.auto_map, "AutoTokenizer"), (beside.auto_map, "AutoTokenizer")]
    if own.tokenizer_class is None:
        # Then transformers asks the model's configuration for it, which may be code as well.
        maps.append((of_model.auto_map, "AutoConfig"))
    if trusted or not any(part in found if isinstance(found, dict) else found for found, part in maps):
        return []
    return [
        f"{key}={tokenizer}: brings Python code (auto_map), which veRL would execute; read the code and set "
        "actor_rollout_ref.model.trust_remote_code=true, or use a model without code"
    ]


def _config_errors(model: Path, view: RunView) -> list[str]:
    try:
        ask_model("context", model_facts(view.config))
    except (ValueError, TimeoutError) as error:
        return [f"{MODEL_PATH}={model}: cannot be opened ({first_line(error)}); get the model again"]
    return []


def _adapter_findings(view: RunView) -> list[Finding]:
    """Check that the modules which a LoRA adapter lists are modules of the model; PEFT fails only where none of them is."""
    key = f"{MODEL}.target_modules"
    targets = view[key]
    if not view[f"{MODEL}.lora_rank"] or not isinstance(targets, ListConfig):
        return []
    try:
        modules = ask_model("linear modules", model_facts(view.config))
    except (ValueError, TimeoutError):  # of a model other than a causal language model
        return []
    known = {name.rpartition(".")[2] for name, linear in modules.items() if linear}
    lacking = [each for each in targets if not any(f".{name}".endswith(f".{each}") for name in modules)]
    return [
        Finding.error(key, f"{key}: the model has no module {each}; {did_you_mean(each, sorted(known))}")
        for each in lacking
    ]


def _tokenizer_errors(model: Path, tokenizer: Path, view: RunView) -> list[str]:
    """Check that a tokenizer can be opened, has a chat template, and has no ids that the model lacks."""
    if not tokenizer.is_dir():
        return []
    try:
        found = ask_model("vocabulary", model_facts(view.config))
    except (ValueError, TimeoutError) as error:
        return [f"{MODEL_PATH}={tokenizer}: its tokenizer cannot be opened ({first_line(error)}); get the model again"]
    errors = []
    if not found["has_template"] and not view["actor_rollout_ref.model.custom_chat_template"]:
        errors.append(
            f"{MODEL_PATH}={tokenizer}: its tokenizer has no chat template; use an instruction-tuned model's, or set "
            "actor_rollout_ref.model.custom_chat_template"
        )
    size, highest = view.decoder["vocab_size"], found["highest"]
    if size is not None and highest >= size:
        errors.append(
            f"{MODEL_PATH}={model}: has embeddings up to id {size - 1}, the tokenizer {tokenizer} ids up to {highest}; use the "
            "model's own tokenizer"
        )
    return errors

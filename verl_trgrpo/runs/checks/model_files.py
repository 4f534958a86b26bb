"""Local model directories: whether model and tokenizer can be opened and fit, and whether they bring code of their own."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.files import read_json
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import first_line
from verl_trgrpo.runs.checks.contracts import build_problems
from verl_trgrpo.runs.checks.files import MODEL, looks_local


def model_findings(config: DictConfig) -> list[Finding]:
    """Complaints about the directories of the policy and of the reward model, if there is one; nothing is downloaded.

    Code of a directory is run where ``model.trust_remote_code`` allows it, and not otherwise.
    """
    model = config.actor_rollout_ref.model
    name, trusted = str(model.path), bool(model.get("trust_remote_code", False))
    path = Path(name).expanduser()
    tokenizer = Path(str(model.get("tokenizer_path") or name)).expanduser()
    findings = []
    if not path.is_dir() and not looks_local(name):
        findings.append(
            Finding.not_checked(MODEL, f"{MODEL}={name} is a name on a hub; nothing is downloaded to look at it")
        )
    problems = _code_problems(path, tokenizer, trusted, MODEL)
    # Opening what brings code of its own would fail for the same reason.
    if not problems and tokenizer.is_dir() and (path / "config.json").is_file():
        problems = _tokenizer_problems(path, tokenizer, bool(model.get("custom_chat_template")), trusted)
    if not problems and path.is_dir() and not (path / "config.json").is_file():
        problems = [f"{MODEL}={name} has no config.json, so it is not a model's directory; give that of a whole model"]
    if not problems and path.is_dir():
        problems = _build_problems(model)
    findings += [Finding.error(MODEL, problem) for problem in problems]
    judge = config.reward.reward_model
    if judge.enable and judge.model_path:
        path = Path(judge.model_path).expanduser()
        key = "reward.reward_model.model_path"
        findings += [Finding.error(key, problem) for problem in _code_problems(path, path, trusted, key)]
    return findings


def _build_problems(model: DictConfig) -> list[str]:
    """Complaints about the files where they cannot be opened with nothing but their paths, else about the run's own keys."""
    problems = build_problems(model)
    if not problems:
        return []
    files = OmegaConf.masked_copy(model, ["_target_", "path", "tokenizer_path", "trust_remote_code"])
    if build_problems(files):
        return [f"{MODEL}={model.path} cannot be opened: {problem}; get the model again" for problem in problems]
    return [f"actor_rollout_ref.model: {problem}" for problem in problems]


def context_length(config: DictConfig) -> int | None:
    """The ``max_position_embeddings`` of a local model; None where it is not known."""
    content = read_json(Path(str(config.actor_rollout_ref.model.path)).expanduser() / "config.json")
    # Models that also see or hear keep the decoder's figures one level down.
    length = (content.get("text_config") or content).get("max_position_embeddings")
    return length if isinstance(length, int) else None


def _code_problems(model: Path, tokenizer: Path, trusted: bool, key: str) -> list[str]:
    """A complaint where opening the tokenizer would run code that comes with it, unless that was allowed.

    ``model.trust_remote_code=false`` does not prevent it: the workers of veRL's reward loop open the tokenizer with
    ``trust_remote_code=True`` whatever the configuration says.
    """
    own = read_json(tokenizer / "tokenizer_config.json")
    parts = [(own, "AutoTokenizer"), (read_json(tokenizer / "config.json"), "AutoTokenizer")]
    if "tokenizer_class" not in own:
        # Then transformers asks the model's configuration for it, which may be code as well.
        parts.append((read_json(model / "config.json"), "AutoConfig"))
    if trusted or not any(part in (content.get("auto_map") or {}) for content, part in parts):
        return []
    return [
        f"{key}={tokenizer} names Python code of its own (auto_map), which veRL would run; read it, then set "
        "actor_rollout_ref.model.trust_remote_code=true, or use a model without"
    ]


def _tokenizer_problems(model: Path, tokenizer: Path, has_template: bool, trusted: bool) -> list[str]:
    """Complaints about a tokenizer that cannot be opened, lacks a chat template, or has ids that the model lacks."""
    from transformers import AutoTokenizer

    try:
        opened = AutoTokenizer.from_pretrained(str(tokenizer), local_files_only=True, trust_remote_code=trusted)
        highest = max(opened.get_vocab().values(), default=-1)
    except Exception as error:  # transformers raises many unrelated types
        return [f"the tokenizer of {MODEL}={tokenizer} cannot be opened ({first_line(error)}); get the model again"]
    problems = []
    if not opened.chat_template and not has_template:
        problems.append(
            f"the tokenizer of {MODEL}={tokenizer} has no chat template, without which veRL cannot write a prompt; use "
            "an instruction-tuned model's, or set actor_rollout_ref.model.custom_chat_template"
        )
    content = read_json(model / "config.json")
    size = content.get("vocab_size", (content.get("text_config") or {}).get("vocab_size"))
    if isinstance(size, int) and highest >= size:
        problems.append(
            f"the tokenizer of {tokenizer} has ids up to {highest}, the model in {model} embeddings up to {size - 1}; it "
            "belongs to another model"
        )
    return problems

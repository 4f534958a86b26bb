"""Local model directories: whether the tokenizer fits the model, and whether one brings code of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

_KEY = "actor_rollout_ref.model"
REWARD_MODEL = "reward.reward_model"


def model_problems(config: DictConfig) -> list[str]:
    """Complaints about the local directories of the policy and of the reward model, if there is one."""
    return policy_problems(config) + reward_model_problems(config)


def reward_model_path(config: DictConfig) -> str | None:
    """The reward model of a run; None for a run without."""
    path = OmegaConf.select(config, f"{REWARD_MODEL}.model_path")
    return str(path) if path and OmegaConf.select(config, f"{REWARD_MODEL}.enable") else None


def reward_model_problems(config: DictConfig) -> list[str]:
    """A complaint where the reward model's directory brings code that its tokenizer would run, see `code_problems`."""
    name = reward_model_path(config)
    path = Path(name or "").expanduser()
    if name is None or not path.is_dir():
        return []
    trusted = bool(config.actor_rollout_ref.model.get("trust_remote_code", False))
    return code_problems(path, path, trusted, f"{REWARD_MODEL}.model_path")


def policy_problems(config: DictConfig) -> list[str]:
    """Complaints about a local model directory; a name on a hub is not looked at.

    Nothing is downloaded; code of the directory is run where ``model.trust_remote_code`` allows it, and not otherwise.
    """
    model = config.actor_rollout_ref.model
    name = str(model.path)
    path = Path(name).expanduser()
    # "name/model" may be on a hub; anything that looks like a path must be there.
    if not path.is_dir() and (path.is_absolute() or name.startswith((".", "~"))):
        return [f"{_KEY}.path={name} is not a directory; give a model directory or a hub name"]
    tokenizer = Path(str(model.get("tokenizer_path") or name)).expanduser()
    if not tokenizer.is_dir():
        return []  # it may be on a hub, or veRL says what is missing
    trusted = bool(model.get("trust_remote_code", False))
    if problems := code_problems(path, tokenizer, trusted):
        return problems  # opening the tokenizer would fail for the same reason
    if not (path / "config.json").is_file():
        return []  # the model is on a hub, or veRL says what is missing
    return tokenizer_problems(path, tokenizer, bool(model.get("custom_chat_template")), trusted)


def code_problems(model: Path, tokenizer: Path, trusted: bool, key: str = f"{_KEY}.path") -> list[str]:
    """A complaint where opening the tokenizer would run code that comes with it, unless that was allowed.

    ``model.trust_remote_code=false`` does not prevent it: the workers of veRL's reward loop open the tokenizer with
    ``trust_remote_code=True`` whatever the configuration says.
    """
    if trusted:
        return []
    own = _json(tokenizer / "tokenizer_config.json")
    parts = [(own, "AutoTokenizer"), (_json(tokenizer / "config.json"), "AutoTokenizer")]
    if "tokenizer_class" not in own:
        # Then transformers asks the model's configuration for it, which may be code as well.
        parts.append((_json(model / "config.json"), "AutoConfig"))
    if not any(part in _auto_map(content) for content, part in parts):
        return []
    return [
        f"{key}={tokenizer} names Python code of its own (auto_map), which veRL would run; read it, then set "
        f"{_KEY}.trust_remote_code=true, or use a model without"
    ]


def tokenizer_problems(model: Path, tokenizer: Path, has_template: bool, trusted: bool = False) -> list[str]:
    """Complaints about a tokenizer that cannot be opened, lacks a chat template, or has ids that the model lacks."""
    from transformers import AutoTokenizer

    try:
        opened = AutoTokenizer.from_pretrained(str(tokenizer), local_files_only=True, trust_remote_code=trusted)
        highest = max(opened.get_vocab().values(), default=-1)
    except Exception as error:  # transformers raises many unrelated types
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [f"the tokenizer of {_KEY}.path={tokenizer} cannot be opened ({reason}); get the model again"]
    problems = []
    if not opened.chat_template and not has_template:
        problems.append(
            f"the tokenizer of {_KEY}.path={tokenizer} has no chat template, without which veRL cannot write a prompt; use "
            f"an instruction-tuned model's, or set {_KEY}.custom_chat_template"
        )
    content = _json(model / "config.json")
    size = content.get("vocab_size", (content.get("text_config") or {}).get("vocab_size"))
    if isinstance(size, int) and highest >= size:
        problems.append(
            f"the tokenizer of {tokenizer} has ids up to {highest}, the model in {model} embeddings up to {size - 1}; it "
            "belongs to another model"
        )
    return problems


def _json(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none, which others complain about."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _auto_map(content: dict[str, Any]) -> Any:
    return content.get("auto_map") or {}

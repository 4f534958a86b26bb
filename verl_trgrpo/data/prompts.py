"""Turn rows of a data file into the token ids with which a run's agent loops begin, by veRL's own functions in a sandbox.

Checks, previews, evaluations, analyses and the record of a run read prompts through :class:`RolloutPrompts`, so that all of
them see what the model will see.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import check_model_directory, load_yaml
from verl_trgrpo.common.sandbox import Sandbox
from verl_trgrpo.common.text import first_line
from verl_trgrpo.common.typed import Schema, Text, read_typed
from verl_trgrpo.data.rows import SINGLE_TURN, TOOL_AGENT

logger = logging.getLogger(__name__)

# Seconds of the processor: a template or a tokenizer may be a stranger's, and loop.
_TEMPLATE_SECONDS, _OPENING_SECONDS = 5.0, 60.0
# Prompts of one question to the sandbox, characters of them, and bytes of the answer.
MOST_PROMPTS, _MOST_CHARS, _MOST_REPLY = 64, 1 << 18, 16 << 20
_UNKNOWN = "whether the chat template opens <think> is not known: %s"

_MODEL, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_AGENT = f"{_ROLLOUT}.agent"
TOOLS = f"{_ROLLOUT}.multi_turn"
"""Section with the tools of a run's agent loops."""


class Prompt(NamedTuple):
    """Token ids with which a row's rollouts begin, before veRL cuts them, and the name of its agent loop."""

    token_ids: list[int]
    agent: str | None


class ModelConfig(Schema):
    """The keys of a model's ``config.json`` or ``tokenizer_config.json`` that decide what is opened, and how."""

    model_type: Text | None = None
    tokenizer_class: Text | None = None
    # The Python classes that a model brings; in old files of tokenizers a list.
    auto_map: dict[Text, Any] | list[Any] | None = None
    # Of models that also see or hear: the configuration of the decoder.
    text_config: dict[Text, Any] | None = None


def ask_model(question: str, model: Mapping[str, Any], *arguments: Any, seconds: float = _OPENING_SECONDS) -> Any:
    """Return the answer to a question of `data.renderer` about a model's files, within limits of time and memory.

    Where Python code of the model is trusted, it is answered in this process, and without limits.

    Raises:
        ValueError: the files cannot be opened; the message has the reason.
        TimeoutError: it takes more than these seconds of the processor, or too much memory.
        RuntimeError: the process that answers cannot be started.
    """
    found: Any = None
    if model["trust"]:
        from verl_trgrpo.data.renderer import answer  # imports veRL

        found = answer(question, model, *arguments)
    else:
        found, _ = _sandbox(os.getpid()).ask(question, model, *arguments, limit=seconds)
    if not isinstance(found, dict) or "value" not in found:
        raise ValueError(str((found or {}).get("error", "its files contradict each other")))
    return found["value"]


@cache
def _sandbox(process: int) -> Sandbox:
    """Return the process that opens models' files for this one; a fork has its own."""
    return Sandbox("verl_trgrpo.data.renderer:answer", _MOST_REPLY, renew_after=None)


def close_sandbox() -> None:
    """End the process that opens models' files; the next question starts another."""
    _sandbox(os.getpid()).close()


def context_of(model: str) -> int | None:
    """Return the tokens that a model takes, None where its config.json does not say; code of the model is not run.

    Raises:
        ValueError: it is not a model that transformers can open within the limits of the sandbox.
    """
    try:
        found = ask_model("context", {"config": _downloaded(_expanded(model)), "trust": False})
    except (ValueError, OSError, TimeoutError) as error:
        raise ValueError(f"model={model} cannot be loaded ({first_line(error)}); give another") from error
    return found if isinstance(found, int) else None


def model_facts(config: DictConfig) -> dict[str, Any]:
    """Return what `ask_model` is told of a run's model. Raises a ForeignFileError if its configuration is damaged."""
    path = _expanded(OmegaConf.select(config, f"{_MODEL}.path"))
    described = Path(_expanded(OmegaConf.select(config, f"{_MODEL}.hf_config_path") or path))
    return {
        "tokenizer": _expanded(OmegaConf.select(config, f"{_MODEL}.tokenizer_path") or path),
        "config": path,
        "kind": read_typed(described / "config.json", ModelConfig).model_type,
        "trust": bool(OmegaConf.select(config, f"{_MODEL}.trust_remote_code")),
        "template": template_options(config),
    }


def opens_thinking(tokenizer: Any, **template_options: Any) -> bool:
    """Return whether a tokenizer's chat template ends the prompt in ``<think>``, as that of DeepSeek-R1-Distill does.

    For veRL's own processes, which render prompts without limits; elsewhere `RolloutPrompts` says so.
    """
    from verl_trgrpo.data.renderer import ends_in_think

    try:
        return ends_in_think(tokenizer, template_options)
    except Exception as error:  # templates raise any type, for example for a chat without a system message
        logger.warning(_UNKNOWN, error)
        return False


def ends_of(tokenizer: Any, config: DictConfig) -> frozenset[int]:
    """Return the tokens that end a response of a run; for veRL's own processes, as `opens_thinking`."""
    from verl_trgrpo.data.renderer import end_tokens

    try:
        return frozenset(end_tokens(tokenizer, model_facts(config)))
    except Exception as error:  # transformers raises many unrelated types, for example for a model on remote storage
        logger.warning("the tokens that end a response, beside the tokenizer's, are not known: %s", error)
        return frozenset({tokenizer.eos_token_id})


def template_options(config: DictConfig) -> dict[str, Any]:
    """Return the options with which a run renders its prompts, for ``apply_chat_template``."""
    given = OmegaConf.select(config, "data.apply_chat_template_kwargs") or OmegaConf.create()
    options: Any = OmegaConf.to_container(given, resolve=True)
    own = OmegaConf.select(config, f"{_MODEL}.custom_chat_template")
    return options | ({"chat_template": own} if own else {})


def default_agent_of(config: DictConfig) -> str:
    """Return the agent loop of rows in files without the column agent_name."""
    return str(OmegaConf.select(config, f"{_AGENT}.default_agent_loop") or SINGLE_TURN)


def prompt_settings(config: DictConfig, model: str) -> DictConfig:
    """Return those settings of a run that decide its prompts, tools aside, with the tokenizer of a directory or hub name."""
    keys = ("data.apply_chat_template_kwargs", f"{_MODEL}.custom_chat_template", f"{_MODEL}.trust_remote_code")
    settings = OmegaConf.create({"actor_rollout_ref": {"model": {"path": model}}})
    for key in keys:
        if value := OmegaConf.select(config, key):
            OmegaConf.update(settings, key, value, force_add=True)
    if (agent := default_agent_of(config)) != SINGLE_TURN:
        OmegaConf.update(settings, f"{_AGENT}.default_agent_loop", agent, force_add=True)
    return settings


class BoundedTokenizer:
    """The tokenizer of a model, opened and used within the limits of the sandbox; `model` is as `ask_model` takes it.

    Its methods take and return what those of transformers do, and raise a ValueError if these raise, a RuntimeError beyond the
    limits.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        self._model = model

    @cached_property
    def end_tokens(self) -> frozenset[int]:
        """Return the tokens that end a response."""
        return frozenset(map(int, self._ask("end tokens")))

    def decode(self, token_ids: Iterable[int], **options: Any) -> str:
        """Return the text of token ids."""
        return str(self._ask("call", "decode", [*map(int, token_ids)], options))

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the token ids of a text."""
        return [*map(int, self._ask("call", "encode", text, options))]

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> Any:
        """Return what a chat template makes of messages: a text, or token ids."""
        return self._ask("call", "apply_chat_template", messages, options)

    def _ask(self, question: str, *arguments: Any) -> Any:
        try:
            return ask_model(question, self._model, *arguments, seconds=_TEMPLATE_SECONDS)
        except TimeoutError as error:  # not a ValueError: the next text would take as long
            raise RuntimeError(f"the tokenizer does not end ({error}); give another model") from error


class RolloutPrompts:
    """Turn rows into token ids and agent loops as the rollouts of a run do.

    Args:
        config: a run's configuration, or the part of it that `prompt_settings` returns. The tokenizer is that of
            ``actor_rollout_ref.model.tokenizer_path``, else of ``path``; ``data.tokenizer`` is not read by veRL.

    Raises:
        ValueError: the tokenizer cannot be loaded or has no chat template, or the schema of a tool is in Python code,
            which is not executed.
    """

    def __init__(self, config: DictConfig) -> None:
        self._model = model_facts(config)
        name, self.template = self._model["tokenizer"], dict(self._model["template"])
        self.template.pop("chat_template", None)
        if Path(name).is_dir():
            check_model_directory(Path(name))
        try:
            self._model["tokenizer"] = _downloaded(name)
            has_template = ask_model("open", self._model)
        except (ValueError, OSError, TimeoutError) as error:
            reason = f"tokenizer={name} cannot be loaded ({first_line(error)})"
            raise ValueError(f"{reason}; check the directory, or the network for a model on the hub") from error
        if not has_template:
            raise ValueError(f"tokenizer={name} has no chat template; give that of an instruction-tuned model")
        self.tokenizer = BoundedTokenizer(self._model)
        self.thinking_opened = self._opens_thinking()
        self._prompt_key = OmegaConf.select(config, "data.prompt_key") or "prompt"
        self.default_agent = default_agent_of(config)
        self._tools = tool_schemas(config, TOOLS)
        self._filter_tools = tool_schemas(config, "data")

    @cached_property
    def has_processor(self) -> bool:
        """Return whether the model has one for images, videos or sounds, by veRL's own function."""
        return bool(ask_model("has processor", self._model))

    def turn(self) -> tuple[dict[int, str], dict[int, str]]:
        """Return the tokens that end a response, and those that the chat template writes behind an answer, with their texts.

        Raises:
            ValueError: the chat template refuses an answer.
            TimeoutError: it takes too much time or memory for one.
        """
        found = ask_model("turn", self._model, seconds=_TEMPLATE_SECONDS)
        ends, behind = ({int(token): str(text) for token, text in found[name]} for name in ("ends", "behind"))
        return ends, behind

    def of(self, rows: Iterable[Mapping[str, Any]]) -> list[Prompt]:
        """Return the prompts of rows, which have their columns under the names that they have in the file.

        Raises:
            ValueError: the chat template refuses one.
            RuntimeError: it takes too much time or memory for one.
        """
        rows = list(rows)
        found = self._rendered("tokens", [self._job(row) for row in rows])
        if refused := [each for each in found if isinstance(each, str)]:
            raise ValueError(refused[0])
        return [Prompt(token_ids, self._agent(row)) for token_ids, row in zip(found, rows, strict=True)]

    def lengths(self, rows: Iterable[Mapping[str, Any]], filtered: bool = False) -> list[int | str]:
        """Return the number of tokens of each prompt, or why the chat template refuses it.

        With `filtered` as veRL's filter of long prompts counts, which leaves out what is refused: with the tools of the run,
        whatever the agent. Raises a RuntimeError as `of`.
        """
        if filtered:
            return self._rendered("lengths", [self._written(row, self._filter_tools) for row in rows])
        return self._rendered("lengths", [self._job(row) for row in rows])

    def _agent(self, row: Mapping[str, Any]) -> str | None:
        return row.get("agent_name", self.default_agent)  # None where the file has the column and the row no name

    def _job(self, row: Mapping[str, Any]) -> str:
        tools, extra_info = self._tools, row.get("extra_info")
        chosen = extra_info.get("tool_selection") if isinstance(extra_info, Mapping) else None
        if chosen and tools:
            by_name = {tool["function"]["name"]: tool for tool in tools}
            tools = [by_name[name] for name in chosen if name in by_name]
        return self._written(row, tools if self._agent(row) == TOOL_AGENT else None)

    def _written(self, row: Mapping[str, Any], tools: list[dict[str, Any]] | None) -> str:
        return json.dumps([list(row[self._prompt_key]), tools], default=str)

    def _opens_thinking(self) -> bool:
        try:
            return bool(ask_model("thinking", self._model, seconds=_TEMPLATE_SECONDS))
        except TimeoutError as error:
            name = self._model["tokenizer"]
            raise ValueError(
                f"tokenizer={name}: its chat template does not end ({error}); give another model"
            ) from error
        except ValueError as error:
            logger.warning(_UNKNOWN, error)
            return False

    def _rendered(self, question: str, jobs: Sequence[str]) -> list[Any]:
        found: list[Any] = []
        for part in _parts(jobs):
            try:
                found += ask_model(question, self._model, part, seconds=_TEMPLATE_SECONDS)
            except TimeoutError:
                for job in part:
                    found += self._rendered_alone(question, job)
        if len(found) != len(jobs):
            raise ValueError("the chat template has taken over the process that renders it; give another model")
        return found

    def _rendered_alone(self, question: str, job: str) -> list[Any]:
        ask_model("has template", self._model)  # opens the files again: the limit is that of the prompt
        try:
            return list(ask_model(question, self._model, [job], seconds=_TEMPLATE_SECONDS))
        except TimeoutError as error:  # not a ValueError: the next row would take as long
            raise RuntimeError(
                f"the chat template or the tokenizer does not end for a prompt of {len(job):,} characters ({error}); give "
                "another model"
            ) from error


def _parts(jobs: Sequence[str]) -> Iterator[list[str]]:
    """Yield jobs in parts of a bounded size, so that a part takes far less time than a prompt may."""
    part, size = list[str](), 0
    for job in jobs:
        if part and (len(part) == MOST_PROMPTS or size + len(job) > _MOST_CHARS):
            yield part
            part, size = [], 0
        part.append(job)
        size += len(job)
    if part:
        yield part


def _downloaded(name: str) -> str:
    """Return the directory of a tokenizer that may be on a hub: a sandbox opens no connections."""
    if Path(name).is_dir():
        return name
    from huggingface_hub import snapshot_download

    return snapshot_download(name, allow_patterns=["*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken"])


def agent_loops(config: DictConfig) -> set[str]:
    """Return the names of a run's agent loops: veRL's, those that modules have registered, and `own_agent_loops`."""
    names = {SINGLE_TURN, TOOL_AGENT, *own_agent_loops(config)}
    # Where it is not imported yet, which takes a third of a second, no module has registered a loop.
    module = sys.modules.get("verl.experimental.agent_loop.agent_loop")
    return names | set(module._agent_loop_registry if module else ())


def own_agent_loops(config: DictConfig) -> dict[str, str]:
    """Return the agent loops of a run's own file, with the names of their classes.

    Raises:
        InvalidInputError: the file cannot be read.
    """
    key = f"{_AGENT}.agent_loop_config_path"
    loops = _read_yaml(config, key) if OmegaConf.select(config, key) else []
    return {str(loop["name"]): str(loop.get("_target_", "")) for loop in loops}


def tool_schemas(config: DictConfig, section: str) -> list[dict[str, Any]] | None:
    """Return the schemas of the tools of ``SECTION.tool_config_path``, as veRL hands them to a chat template; None without one.

    Raises:
        InvalidInputError: the file cannot be read.
        ValueError: a schema comes from Python code.
    """
    if functions := OmegaConf.select(config, f"{section}.function_tool_path"):
        raise ValueError(f"{section}.function_tool_path={functions}: is Python code, which is not executed here")
    key = f"{section}.tool_config_path"
    if not (file := OmegaConf.select(config, key)):
        return None
    content = _read_yaml(config, key)
    from verl.tools.schemas import OpenAIFunctionToolSchema

    try:
        schemas = [tool.get("tool_schema") for tool in content["tools"]]
        found = [OpenAIFunctionToolSchema.model_validate(schema) for schema in schemas if schema is not None]
    except Exception as error:  # pydantic's, or those of another structure
        raise InvalidInputError(
            [f"{key}={file}: has no tools that veRL can read ({first_line(error)}); correct the file"]
        ) from error
    if None in schemas:
        raise ValueError(f"{key}={file}: a tool has its schema in Python code, which is not executed here")
    return [schema.model_dump(exclude_unset=True, exclude_none=True) for schema in found]


def _read_yaml(config: DictConfig, key: str) -> Any:
    from verl.utils.import_utils import resolve_config_path

    file = str(OmegaConf.select(config, key))
    try:
        return OmegaConf.to_container(load_yaml(Path(resolve_config_path(file))), resolve=False)
    except Exception as error:  # YAML, OmegaConf and the file system raise many types
        raise InvalidInputError([f"{key}={file}: cannot be read ({first_line(error)}); correct the file"]) from error


def _expanded(name: Any) -> str:
    local = Path(str(name)).expanduser()
    return str(local.absolute()) if local.is_dir() else str(name)

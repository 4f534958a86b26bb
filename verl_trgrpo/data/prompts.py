"""Turn rows of a data file into the token ids with which a run's agent loops begin, by veRL's own functions.

Checks, previews, evaluations, analyses and the record of a run read prompts through :class:`RolloutPrompts`, so that all of
them see what the model will see.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.files import read_json
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import check_model_directory, load_yaml
from verl_trgrpo.common.progress import cpu_limit
from verl_trgrpo.common.text import first_line

SINGLE_TURN, TOOL_AGENT = "single_turn_agent", "tool_agent"
"""veRL's agent loops: the default of rows without an agent_name, and the one whose prompts list the run's tools."""

logger = logging.getLogger(__name__)

# A template may be a stranger's, and loop.
_TEMPLATE_SECONDS = 5.0

_MODEL, _ROLLOUT = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
_AGENT = f"{_ROLLOUT}.agent"
TOOLS = f"{_ROLLOUT}.multi_turn"
"""Section with the tools of a run's agent loops."""


class Prompt(NamedTuple):
    """Token ids with which a row's rollouts begin, before veRL cuts them, and the name of its agent loop."""

    token_ids: list[int]
    agent: str | None


def opens_thinking(tokenizer: Any, **template_options: Any) -> bool:
    """Return whether a tokenizer's chat template ends the prompt in ``<think>``, as that of DeepSeek-R1-Distill does.

    Raises a ValueError if the template does not end.
    """
    if not (template_options.get("chat_template") or getattr(tokenizer, "chat_template", None)):
        return False
    messages = [{"role": "user", "content": "?"}]
    try:
        with cpu_limit(_TEMPLATE_SECONDS):
            text = tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, tokenize=False, **template_options
            )
    except TimeoutError as error:
        raise ValueError(f"the chat template does not end ({error}); give another model") from error
    except Exception as error:  # templates raise any type, for example for a chat without a system message
        logger.warning("whether the chat template opens <think> is not known: %s", error)
        return False
    return text.rstrip().endswith("<think>")


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
        from verl.utils.tokenizer import continuous_token_wiring, hf_processor, hf_tokenizer

        path = str(OmegaConf.select(config, f"{_MODEL}.path"))
        name = _expanded(OmegaConf.select(config, f"{_MODEL}.tokenizer_path") or path)
        options = {
            "trust_remote_code": bool(OmegaConf.select(config, f"{_MODEL}.trust_remote_code")),
            "local_files_only": Path(name).is_dir(),
        }
        template = template_options(config)
        custom = template.pop("chat_template", None)
        if options["local_files_only"]:
            check_model_directory(Path(name))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about the padding token
                self.tokenizer: Any = hf_tokenizer(name, **options)
                processor = hf_processor(name, **options)  # None for a model that reads text alone
        except Exception as error:  # transformers raises many unrelated types
            raise ValueError(f"tokenizer={name} cannot be loaded ({first_line(error)}); check it") from error
        for owner in (self.tokenizer, processor):
            if owner is not None and custom:
                owner.chat_template = custom
        if not self.tokenizer.chat_template and not (processor and processor.chat_template):
            raise ValueError(f"tokenizer={name} has no chat template; give that of an instruction-tuned model")
        described = Path(_expanded(OmegaConf.select(config, f"{_MODEL}.hf_config_path") or path))
        content = read_json(described / "config.json")
        # It warns of each model without a builder of its own.
        logging.getLogger(continuous_token_wiring.__name__).setLevel(logging.ERROR)
        self._builder: Any = continuous_token_wiring.create_continuous_token_builder(
            self.tokenizer, hf_model_type=content.get("model_type"), chat_template_kwargs=template, processor=processor
        )
        self.template, self.thinking_opened = template, opens_thinking(self.tokenizer, **template)
        self._prompt_key = OmegaConf.select(config, "data.prompt_key") or "prompt"
        self.default_agent = default_agent_of(config)
        self._tools = tool_schemas(config, TOOLS)
        self._filter_tools = tool_schemas(config, "data")

    def of(self, row: Mapping[str, Any]) -> Prompt:
        """Return the prompt of a row, which has its columns under the names that they have in the file.

        Raises:
            ValueError: the chat template refuses it.
            RuntimeError: it does not end.
        """
        agent = row.get("agent_name", self.default_agent)  # None where the file has the column and the row no name
        tools = self._tools
        extra_info = row.get("extra_info")
        chosen = extra_info.get("tool_selection") if isinstance(extra_info, Mapping) else None
        if chosen and tools:
            by_name = {tool["function"]["name"]: tool for tool in tools}
            tools = [by_name[name] for name in chosen if name in by_name]
        return Prompt(self._rendered(row[self._prompt_key], tools if agent == TOOL_AGENT else None), agent)

    def filter_length(self, row: Mapping[str, Any]) -> int:
        """Return the tokens that veRL's filter of long prompts counts: with the tools of the run, whatever the agent.

        Raises:
            ValueError: the chat template refuses it; the filter leaves such a row out.
        """
        return len(self._rendered(row[self._prompt_key], self._filter_tools))

    def _rendered(self, messages: Iterable[Mapping[str, Any]], tools: list[dict[str, Any]] | None) -> list[int]:
        try:
            with cpu_limit(_TEMPLATE_SECONDS):
                return self._builder.build_initial_tokens(list(messages), tools=tools)
        except TimeoutError as error:  # not a ValueError: the next row would take as long
            raise RuntimeError(f"the chat template does not end ({error}); give another model") from error
        except Exception as error:  # templates raise any type
            raise ValueError(f"the chat template refuses the prompt: {first_line(error)}") from error


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
            [f"{key}={file}: has no tools that veRL can read ({first_line(error)}); correct it"]
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
        raise InvalidInputError([f"{key}={file}: cannot be read ({first_line(error)}); correct it"]) from error


def _expanded(name: Any) -> str:
    local = Path(str(name)).expanduser()
    return str(local) if local.is_dir() else str(name)

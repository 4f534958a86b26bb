"""Construct the configuration of vLLM's engine as veRL's server does, without weights and without a GPU."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from omegaconf import DictConfig
from pydantic import ValidationError

from verl_trgrpo.checks.construct.attempt import UsageError, attempt, built_quietly, is_of_machine, reason_of
from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.text import as_plain_yaml
from verl_trgrpo.runs.keys import selected

_ARGUMENT = re.compile(r"^argument --(?P<name>[\w-]+)")


def server_findings(
    section: str, rollout: DictConfig, model: DictConfig, gpus: int, is_here: bool = True
) -> list[Finding]:
    """Let veRL make the arguments of a vLLM server, and vLLM the engine's configuration of them.

    Of another model than the run's the context length says nothing: what would hold the longest sequence is not refused.

    Args:
        section: dotted key of the rollout.
        rollout: its section.
        model: the section of its model, whose files are on this machine.
        gpus: of one node.
        is_here: False if another model is used in place of the run's own.
    """
    if images := rollout.get("limit_images"):  # of a model without images vLLM does not look at it
        fix = f"correct {section}.limit_images"
        if found := attempt(f"{section}.limit_images", images, lambda: _most_images(images), "vLLM", fix):
            return found
    try:
        built_quietly(lambda: _engine_config(rollout, model, gpus))
    except MemoryError:
        raise
    except Exception as error:
        key, reason = _key_of(error, section, rollout), reason_of(error)
        if not is_here and rollout.max_model_len is None:
            known = rollout.copy()
            known.max_model_len = rollout.prompt_length + rollout.response_length
            if not server_findings(section, known, model, gpus):
                reason = "depends on the context length of a model that is not on this machine"
                return [Finding.not_checked(key, f"{key}: {reason}")]
        if is_of_machine(error):
            return [Finding.not_checked(key, f"{key}: vLLM's engine is not configured here ({reason})")]
        shown = key
        if key != section:
            shown += f"={as_plain_yaml(selected(rollout, key.removeprefix(f'{section}.')))}"
        message = f"{shown}: the vLLM server of the rollout does not start ({reason}); correct {key}"
        return [Finding.error(key, message)]
    return []


def _most_images(count: int) -> object:
    from vllm.config.multimodal import MultiModalConfig

    return MultiModalConfig(limit_per_prompt={"image": count})  # type: ignore[dict-item]  # as veRL hands it on


def _key_of(error: BaseException, section: str, rollout: DictConfig) -> str:
    """Return the key of the argument that an error names, the section where it names none."""
    names = []
    if isinstance(error, ValidationError):
        names = [str(each["loc"][0]) for each in error.errors() if each["loc"]]
    elif isinstance(error, UsageError) and (found := _ARGUMENT.search(str(error))):
        names = [found["name"].replace("-", "_")]
    else:
        said = str(error)
        names = [name for name in re.findall(r"\w+", said) if "_" in name]
        names += [
            str(name) for name, value in rollout.items() if isinstance(value, str) and re.search(rf"\b{value}\b", said)
        ]
    for name in names:
        given = selected(rollout, "engine_kwargs.vllm") or {}
        if name in given:
            return f"{section}.engine_kwargs.vllm.{name}"
        if name in rollout:
            return f"{section}.{name}"
    return section


def _engine_config(rollout: DictConfig, model: DictConfig, gpus: int) -> Any:
    """Return vLLM's configuration of the engine, for the first process of the first replica."""
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.platforms import current_platform
    from vllm.usage.usage_lib import UsageContext

    class Server(vLLMHttpServer):
        """Stops where veRL's would start the engine."""

        def __init__(self) -> None:
            self.config = self._init_config(rollout)
            self.model_config = self._init_model_config(model)
            self._validate_configs()
            if not current_platform.is_sleep_mode_available():
                object.__setattr__(self.config, "enable_sleep_mode", False)
            world = self.config.tensor_model_parallel_size * self.config.data_parallel_size
            world *= self.config.pipeline_model_parallel_size
            self.gpus_per_node = max(1, min(gpus, world))
            self.nnodes = max(1, world // self.gpus_per_node)
            self.workers = [None] * self.gpus_per_node
            self.replica_rank = self.node_rank = 0
            self._disaggregation_role, self._disaggregation_kv_transfer_config = "null", None
            self._master_address, self._master_port, self._dp_rpc_port = "127.0.0.1", 1, 1

        def _should_profile(self) -> bool:
            return False

        async def run_server(self, args: Any) -> None:
            arguments = AsyncEngineArgs.from_cli_args(args)
            self.engine_config = arguments.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
            get_model_loader(self.engine_config.load_config)

    environment = dict(os.environ)
    try:
        server = Server()
        _register(server.model_config.architectures)
        with contextlib.suppress(StopIteration):
            server.launch_server().send(None)  # it awaits no other; an event loop would open a socket
    finally:
        os.environ.clear()
        os.environ.update(environment)
    return server.engine_config


def _register(architectures: list[str]) -> None:
    """Import the classes of a model, of which vLLM would ask a process of its own."""
    from vllm import ModelRegistry

    for name in architectures:
        known = ModelRegistry.models.get(name)
        if known is not None and hasattr(known, "module_name"):
            ModelRegistry.register_model(name, known.load_model_cls())

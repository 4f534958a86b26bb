"""Open tokenizers, chat templates and descriptions of models, which may be a stranger's: what `prompts` asks of a sandbox.

Everything here runs within the limits of `common.sandbox`, and imports veRL, whose functions it calls.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from verl_trgrpo.common.text import first_line

Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None


def warm_up() -> None:
    """Import what the answers need."""
    from transformers import AutoConfig, AutoProcessor, AutoTokenizer  # noqa: F401
    from verl.utils.tokenizer import continuous_token_wiring

    logging.getLogger(continuous_token_wiring.__name__).setLevel(
        logging.ERROR
    )  # of models without a builder of their own


def answer(question: str, model: Mapping[str, Any], *arguments: Any) -> dict[str, Any]:
    """Return the answer to one of `QUESTIONS` about a model as ``{"value": ...}``, or ``{"error": reason}``.

    Args:
        question: its name.
        model: as `Renderer`.
        arguments: of the question.
    """
    try:
        return {"value": QUESTIONS[question](model, *arguments)}
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except (
        BaseException
    ) as error:  # transformers and templates raise many unrelated types, a panic of Rust no Exception
        return {"error": first_line(error)}


class Renderer:
    """Render prompts as the rollouts of a run do.

    Args:
        model: directory or hub name of the `tokenizer`, the `config` of the model, whether its Python code is trusted (`trust`),
            and the options of its `template`, among them a ``chat_template`` in place of the tokenizer's own.
    """

    def __init__(self, model: Mapping[str, Any]) -> None:
        from verl.utils.tokenizer import continuous_token_wiring, hf_processor

        self.tokenizer, options = open_tokenizer(model["tokenizer"], model["trust"]), dict(model["template"])
        processor = hf_processor(model["tokenizer"], **_options(model["tokenizer"], model["trust"]))
        self.has_processor = processor is not None  # which reads images, videos and sounds
        custom = options.pop("chat_template", None)
        for owner in (self.tokenizer, processor):
            if owner is not None and custom:
                owner.chat_template = custom
        self.has_template = bool(self.tokenizer.chat_template or (processor and processor.chat_template))
        self.options = options
        self._builder: Any = continuous_token_wiring.create_continuous_token_builder(
            self.tokenizer, hf_model_type=model["kind"], chat_template_kwargs=options, processor=processor
        )

    def tokens(self, messages: Messages, tools: Tools) -> list[int]:
        """Return the token ids of a prompt."""
        return [*self._builder.build_initial_tokens(messages, tools=tools)]


def open_tokenizer(name: str, trust: bool) -> Any:
    """Return the tokenizer of a model as veRL opens it."""
    from verl.utils.tokenizer import hf_tokenizer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the padding token
        return hf_tokenizer(name, **_options(name, trust))


def _options(name: str, trust: bool) -> dict[str, bool]:
    return {"trust_remote_code": trust, "local_files_only": Path(name).is_dir()}


def ends_in_think(tokenizer: Any, template_options: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer's chat template ends a prompt in ``<think>``."""
    if not (template_options.get("chat_template") or getattr(tokenizer, "chat_template", None)):
        return False
    messages = [{"role": "user", "content": "?"}]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **template_options)
    return bool(text.rstrip().endswith("<think>"))


def end_tokens(tokenizer: Any, model: Mapping[str, Any]) -> list[int]:
    """Return the tokens at which vLLM ends a response: the tokenizer's, and those of ``generation_config.json``.

    Without that file those of ``config.json`` take their place. `model` as `Renderer`.
    """
    from transformers import GenerationConfig

    ends: Any = None
    with suppress(OSError):  # neither file is here
        try:
            ends = GenerationConfig.from_pretrained(model["config"], local_files_only=True).eos_token_id
        except OSError:
            ends = GenerationConfig.from_model_config(_config(model)).eos_token_id
    several = ends if isinstance(ends, list) else [ends]
    return sorted({each for each in (tokenizer.eos_token_id, *several) if isinstance(each, int)})


def _turn(model: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the tokens that end a response, and those that the chat template writes behind an answer, each with its text."""
    renderer, answer_text = _renderer(model), "FortyTwo"
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": answer_text}]
    text = renderer.tokenizer.apply_chat_template(messages, tokenize=False, **renderer.options)
    _, found, behind = text.rpartition(answer_text)
    tokens = renderer.tokenizer.encode(behind, add_special_tokens=False) if found else []
    named = {"ends": end_tokens(renderer.tokenizer, model), "behind": tokens}
    return {name: [[each, renderer.tokenizer.decode([each])] for each in ids] for name, ids in named.items()}


@lru_cache(maxsize=1)
def _opened(model: str) -> Renderer:
    return Renderer(json.loads(model))


def _renderer(model: Mapping[str, Any]) -> Renderer:
    return _opened(json.dumps(model))


def _open(model: Mapping[str, Any]) -> bool:
    """Open the files anew, which may have changed; return whether there is a chat template."""
    _opened.cache_clear()
    return _renderer(model).has_template


def _rendered(show: Callable[[list[int]], Any], model: Mapping[str, Any], jobs: list[str]) -> list[Any]:
    renderer = _renderer(model)
    found = []
    for job in jobs:
        try:
            found.append(show(renderer.tokens(*json.loads(job))))
        except MemoryError:
            raise
        except Exception as error:  # templates raise any type
            found.append(f"the chat template refuses the prompt: {first_line(error)}")
    return found


def _config(model: Mapping[str, Any]) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(model["config"], local_files_only=True, trust_remote_code=model["trust"])


def _linear_modules(model: Mapping[str, Any]) -> dict[str, bool]:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):  # no memory
        modules = AutoModelForCausalLM.from_config(_config(model), trust_remote_code=model["trust"]).named_modules()
    return {name: isinstance(module, torch.nn.Linear) for name, module in modules}


def _vocabulary(model: Mapping[str, Any]) -> dict[str, Any]:
    tokenizer = open_tokenizer(model["tokenizer"], model["trust"])
    return {"highest": max(tokenizer.get_vocab().values(), default=-1), "has_template": bool(tokenizer.chat_template)}


def _call(model: Mapping[str, Any], method: str, argument: Any, options: dict[str, Any]) -> Any:
    return getattr(_renderer(model).tokenizer, method)(argument, **options)


QUESTIONS: dict[str, Callable[..., Any]] = {
    "open": _open,
    "has template": lambda model: _renderer(model).has_template,
    "has processor": lambda model: _renderer(model).has_processor,
    "thinking": lambda model: ends_in_think(_renderer(model).tokenizer, _renderer(model).options),
    "tokens": partial(_rendered, list),
    "lengths": partial(_rendered, len),
    "call": _call,
    "end tokens": lambda model: end_tokens(_renderer(model).tokenizer, model),
    "turn": _turn,
    "context": lambda model: getattr(_config(model), "max_position_embeddings", None),
    "linear modules": _linear_modules,
    "vocabulary": _vocabulary,
}

"""A model's tokenizer: what its chat template makes of prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from verl_trgrpo.common.text import first_line


def load_tokenizer(directory: Path) -> Any:
    """Return the tokenizer in a local directory; nothing is downloaded and no code of the directory is run.

    Raises ValueError where there is none or it has no chat template.
    """
    if not directory.is_dir():
        raise ValueError(f"the tokenizer {directory} is not a directory; give the directory of a local model")
    try:
        from transformers import AutoTokenizer  # slow import, needed here only

        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many unrelated types
        raise ValueError(f"no tokenizer could be loaded from {directory} ({first_line(error)}); check it") from error
    if not tokenizer.chat_template:
        raise ValueError(f"the tokenizer in {directory} has no chat template; give that of an instruction-tuned model")
    return tokenizer


def prompt_length(tokenizer: Any, prompt: Any) -> int:
    """Return the number of tokens of a prompt as the model gets it.

    Raises ValueError with the reason where the chat template refuses it.
    """
    try:
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
    except Exception as error:  # templates raise what they like
        raise ValueError(f"the chat template refuses the prompt: {first_line(error)}") from error

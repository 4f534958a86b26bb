"""Name the extra of this distribution that installs a missing module."""

from __future__ import annotations

_MODULES = {
    "core": "torch numpy",
    "verl": "verl hydra omegaconf ray transfer_queue tensordict transformers tokenizers huggingface_hub datasets pyarrow pandas "
    "psutil packaging pydantic annotated_types safetensors tqdm tree_sitter tree_sitter_bash tyro yaml",
    "rewards": "mpmath lark",
    "puzzles": "reasoning_gym",
    "search": "tantivy starlette uvicorn httptools anyio aiohttp",
    "reports": "scipy matplotlib jinja2",
    "small-lm": "gguf peft",
    "gpu": "vllm",
}
EXTRA_OF = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}


def missing_extra(error: BaseException) -> str | None:
    """Return one line that names the module that `error` misses and its extra, or None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    extra = EXTRA_OF.get(error.name.partition(".")[0])
    return extra and f"the module {error.name} is not installed; {install_command(extra)}"


def install_command(extra: str) -> str:
    """Return the command that installs an extra: this distribution is on no package index."""
    return f'pip install -e "CLONE-OF-THIS-REPOSITORY[{extra}]"'

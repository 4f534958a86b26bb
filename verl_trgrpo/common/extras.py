"""Name the extra of this distribution that installs a missing module."""

from __future__ import annotations

EXTRA_OF = {
    **dict.fromkeys(
        [
            "verl",
            "hydra",
            "omegaconf",
            "ray",
            "transfer_queue",
            "tensordict",
            "transformers",
            "tokenizers",
            "huggingface_hub",
            "datasets",
            "pyarrow",
            "pandas",
            "psutil",
            "packaging",
            "pydantic",
            "annotated_types",
            "tqdm",
            "tyro",
            "yaml",
        ],
        "verl",
    ),
    **dict.fromkeys(["math_verify", "latex2sympy2_extended"], "rewards"),
    "reasoning_gym": "puzzles",
    **dict.fromkeys(["tantivy", "starlette", "uvicorn", "aiohttp"], "search"),
    **dict.fromkeys(["scipy", "matplotlib", "jinja2"], "reports"),
    **dict.fromkeys(["gguf", "peft"], "small-lm"),
    "vllm": "gpu",
}


def missing_extra(error: BaseException) -> str | None:
    """Return one line that names the module that `error` misses and its extra, or None for any other error."""
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    extra = EXTRA_OF.get(error.name.partition(".")[0])
    return extra and f'the module {error.name} is not installed; pip install "verl-trgrpo[{extra}]"'

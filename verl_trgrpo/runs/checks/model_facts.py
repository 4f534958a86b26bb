"""The figures of a model that lengths and memory depend on, without loading it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_trgrpo.common.problems import raise_problems

# Key below which a recipe states the model's figures, with the names of config.json.
RECIPE_KEY = "recipe.model"

_OPTIONAL = ("tie_word_embeddings", "head_dim")


@dataclass(frozen=True)
class ModelFacts:
    """A dense decoder with gated MLPs, under the names of the model's ``config.json``.

    Raises ValueError that lists every figure that is not a positive whole number.
    """

    num_hidden_layers: int
    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    max_position_embeddings: int
    tie_word_embeddings: bool = False
    head_dim: int | None = None

    def __post_init__(self) -> None:
        figures = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OPTIONAL}
        raise_problems(
            [
                f"{name}={value!r} is not a positive whole number; correct it from the model's config.json"
                for name, value in figures.items()
                if not isinstance(value, int) or isinstance(value, bool) or value < 1
            ]
        )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer: queries and output, keys and values, three matrices of the MLP; norms are left out."""
        attention = self.hidden_size * self.head_size * (2 * self.num_attention_heads + 2 * self.num_key_value_heads)
        return attention + 3 * self.hidden_size * self.intermediate_size

    @property
    def parameters(self) -> int:
        """Parameters in all, within one percent: layers and embeddings."""
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_hidden_layers * self.layer_parameters + embeddings


def read_model_facts(config: DictConfig) -> ModelFacts | str:
    """The model's figures, or why they are not known.

    ``config.json`` in a local model directory wins; else ``recipe.model`` of the configuration, if it is about this model
    (``recipe.model.path``). Nothing is downloaded.

    Raises:
        ValueError: when the figures are there but make no sense.
    """
    model = str(config.actor_rollout_ref.model.path)
    path = Path(model).expanduser() / "config.json"
    figures: Any
    if path.is_file():
        try:
            figures = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise ValueError(f"{path} cannot be read ({problem}); get the model again") from problem
        # Models that also see or hear keep the decoder's figures one level down.
        figures, source = figures.get("text_config", figures), str(path)
    else:
        figures, source = OmegaConf.select(config, RECIPE_KEY), RECIPE_KEY
        if figures is None:
            return f"{model} is not on this machine and {RECIPE_KEY} does not state its figures"
        if figures.get("path", model) != model:
            return f"{model} is not on this machine and {RECIPE_KEY} is about {figures['path']}"
    known = [field.name for field in fields(ModelFacts)]
    if missing := [name for name in known if name not in figures and name not in _OPTIONAL]:
        raise ValueError(f"{source} lacks {', '.join(missing)}; add them from the model's config.json")
    try:
        return ModelFacts(**{name: figures[name] for name in known if name in figures})
    except ValueError as problem:
        raise ValueError(f"{source}: {problem}") from problem

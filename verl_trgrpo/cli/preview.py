"""Sample responses to a few training prompts and show their rewards, before the run starts.

examples:
  verl-trgrpo preview recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml
  verl-trgrpo preview trgrpo_trainer --prompts 8 --samples 8 data.train_files=train.parquet ...

Takes model, training files, sampling, lengths and reward function from the configuration, and other words as Hydra
overrides; without an accelerator with platform=cpu, as training would. Only vLLM is started, not Ray or a trainer.
If all responses to a prompt get the same reward, GRPO learns nothing from it.
Exit code: 0 fine, 1 vLLM failed, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl_trgrpo.common.findings import Level, raise_invalid, range_errors
from verl_trgrpo.common.options import parse_options


@dataclass(frozen=True)
class PreviewOptions:
    """One preview.

    Args:
        config: a recipe file, or a configuration's name, such as trgrpo_trainer.
        overrides: Hydra overrides.
        prompts: number of training prompts.
        samples: responses to each.
        characters: number of characters of a response to show, from its end; 0 for all.
    """

    config: str
    overrides: tuple[str, ...] = ()
    prompts: int = 4
    samples: int = 4
    characters: int = 800

    def __post_init__(self) -> None:
        raise_invalid(
            range_errors(vars(self), {"prompts": "[1, inf)", "samples": "[1, inf)", "characters": "[0, inf)"})
        )


def run(words: Sequence[str]) -> int:
    options = parse_options(PreviewOptions, "verl-trgrpo preview", __doc__, words, ("config",), "overrides")
    from verl_trgrpo.common.progress import interruptible
    from verl_trgrpo.runs.train import compose_here

    run = compose_here(options.config, options.overrides)
    from verl_trgrpo.evaluation.preview import preview, render
    from verl_trgrpo.runs.validate import check

    raise_invalid(check(run).messages(Level.ERROR))
    with interruptible() as progress:
        found = preview(run.config, options.prompts, options.samples, progress)
    print(render(found, options.characters))
    return 0

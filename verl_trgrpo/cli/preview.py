"""``verl-trgrpo preview``."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from verl_trgrpo.common.findings import Level, raise_invalid, range_errors


@dataclass(frozen=True)
class PreviewOptions:
    """Select the configuration and how much to sample.

    Args:
        config: recipe file, or name of a configuration, such as trgrpo_trainer.
        overrides: Hydra overrides, all before or all after the options.
        prompts: number of training prompts.
        samples: responses to each prompt.
        characters: characters to show of a response, counted from its end; 0 for all.
    """

    config: tyro.conf.Positional[str]
    overrides: tyro.conf.Positional[tuple[str, ...]] = ()
    prompts: int = 4
    samples: int = 4
    characters: int = 800

    def __post_init__(self) -> None:
        raise_invalid(
            range_errors(vars(self), {"prompts": "[1, inf)", "samples": "[1, inf)", "characters": "[0, inf)"})
        )


def run(options: PreviewOptions) -> int:
    """Sample responses to a few training prompts as a run would, and show their rewards, before the run starts.

    examples:
      verl-trgrpo preview recipes/knights_and_knaves/qwen2.5-3b-instruct.yaml
      verl-trgrpo preview trgrpo_trainer --prompts 8 --samples 8 data.train_files=train.parquet ...

    notes:
      Model, training files, sampling, lengths and reward function are those of the configuration.
      Only vLLM is started, not Ray or a trainer. Without an accelerator platform=cpu is used.
      GRPO learns nothing from a prompt whose responses all get the same reward.

    exit codes:
      0 success, 1 vLLM failed, 2 invalid input, 130 interrupted
    """
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

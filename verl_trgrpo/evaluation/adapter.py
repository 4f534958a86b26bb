"""Add a LoRA adapter to the weights beside it, in a process of its own: ``python -m verl_trgrpo.evaluation.adapter DIRECTORY``.

veRL's merger writes the base model of a LoRA checkpoint, and the adapter in ``lora_adapter`` beside it. PEFT computes W + B A
alpha / r in float32; the sum is written in the data type of the base, bfloat16.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# What veRL's merger calls the adapter's directory (``save_lora_adapter``).
ADAPTER = "lora_adapter"


def merge_adapter(directory: Path) -> None:
    """Replace the weights of `directory` by their sum with the adapter in it, which is removed.

    Raises:
        ValueError: the scale alpha of the adapter is 0 or not recorded, or the weights of the base are missing.
    """
    import torch
    from peft import PeftConfig, PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM

    place = directory / ADAPTER
    if not PeftConfig.from_pretrained(str(place)).lora_alpha:  # type: ignore[attr-defined]
        raise ValueError(
            f"{directory}: lora_alpha of the adapter is 0 or not recorded, so the sum would be the base model; write the run's "
            "lora_alpha into the checkpoint's actor/lora_train_meta.json"
        )
    dtype = AutoConfig.from_pretrained(directory).dtype or torch.bfloat16
    base, loaded = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32, output_loading_info=True)
    if missing := sorted(loaded["missing_keys"]):
        raise ValueError(
            f"{directory}: the checkpoint holds the adapter without its base ({missing[0]}, {len(missing)} in all); "
            "save with actor_rollout_ref.actor.checkpoint.save_lora_only=false, or add the adapter to the base by PEFT"
        )
    merged = PeftModel.from_pretrained(base, str(place)).merge_and_unload().to(dtype)
    # The base's files could have other names than those of the sum.
    for file in (*directory.glob("*.safetensors"), *directory.glob("*.safetensors.index.json")):
        file.unlink()
    merged.save_pretrained(directory)
    shutil.rmtree(place)


if __name__ == "__main__":
    merge_adapter(Path(sys.argv[1]))

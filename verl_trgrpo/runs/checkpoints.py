"""Choose the checkpoint that a run resumes from, even if the last save was interrupted.

veRL writes ``global_step_N/actor`` (each rank its own files), then ``data.pt``, then the tracker file. It resumes from the
step in the tracker file without checking the directory; this module checks it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import zipfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.findings import InvalidInputError
from verl_trgrpo.common.foreign import ForeignFileError, open_foreign, read_foreign, real_path
from verl_trgrpo.runs.metrics import read_run
from verl_trgrpo.runs.records import read_record

TRACKER = "latest_checkpointed_iteration.txt"
DATA_STATE = "data.pt"
FSDP_RECORD = "fsdp_config.json"  # version of FSDP and number of ranks
_TRACKER_LIMIT = 1 << 10

_DIRECTORY = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"(\w+)_world_size_(\d+)_rank_(\d+)\.pt")


def checkpoint_bytes(parameters: int, contents: Collection[str] = ("model", "optimizer")) -> int:
    """Return the size of a checkpoint of a model with so many parameters, trained in float32.

    Args:
        parameters: of the model.
        contents: veRL's ``checkpoint.save_contents``: the weights, Adam's two moments, and the model in bfloat16 as Hugging Face
            stores it.
    """
    return parameters * sum({"model": 4, "optimizer": 8, "hf_model": 2}.get(name, 0) for name in contents)


def step_of(checkpoint: Path) -> int:
    """Return N of ``global_step_N``."""
    return int(checkpoint.name.rsplit("_", 1)[1])


def tracked_checkpoint(run_dir: Path) -> Path | None:
    """Return the checkpoint directory that veRL's tracker file names, or None."""
    try:
        step = read_foreign(run_dir / TRACKER, _TRACKER_LIMIT).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError, ForeignFileError):
        return None
    checkpoint = run_dir / f"global_step_{step}"
    return checkpoint if step.isdecimal() and checkpoint.is_dir() else None


def latest_checkpoint(run_dir: Path) -> Path | None:
    """Return the checkpoint that `choose_checkpoint` chooses; None where there is none that can be loaded."""
    try:
        return choose_checkpoint(run_dir)[0]
    except InvalidInputError:
        return None


def holds_checkpoint(run_dir: Path) -> bool:
    """Return whether there is a checkpoint that this start or, after a repair, a later one may continue."""
    try:
        return choose_checkpoint(run_dir)[0] is not None
    except InvalidInputError:
        return True


def choose_checkpoint(run_dir: Path) -> tuple[Path | None, str]:
    """Return the checkpoint to resume from: the tracked one if it is complete, else the latest complete one.

    A copy may have left the tracker file out, and a kill in the first save leaves none: it is trusted no further than the
    directories are.

    Returns:
        the checkpoint, or None where no save was ended: the run starts from scratch then; and a note if it is not the tracked
            one, else "".

    Raises:
        InvalidInputError: no checkpoint is complete; starting over is the user's decision.
    """
    there = list(checkpoints(run_dir)) if run_dir.is_dir() else []
    has_tracker = os.path.lexists(run_dir / TRACKER)
    tracked = tracked_checkpoint(run_dir)
    problems = damage(tracked) if tracked else []
    if tracked and not problems:
        return tracked, ""
    reason = "; ".join(problems) or f"{TRACKER} {'names no checkpoint' if has_tracker else 'is missing'}"
    found = f"{tracked.name if tracked else run_dir.name}: {reason}"
    if others := [other for other in there if other != tracked and not damage(other)]:
        chosen = max(others, key=step_of)
        return chosen, f"{found}; going on from {chosen.name}, the latest checkpoint that is whole"
    lost = "" if has_tracker else _lost(run_dir, there)
    if not has_tracker and not lost:
        names = _names(there)
        return None, f"{names} was not saved to its end, and no other checkpoint is there" if names else ""
    found += f"; {lost}" if lost else ""
    message = (
        f"{run_dir} has no checkpoint that can be loaded ({found}); restore one, or start over with "
        "trainer.resume_mode=disable"
    )
    raise InvalidInputError([message])


def settle_checkpoint(run_dir: Path) -> list[str]:
    """Make the tracker file name the checkpoint that `choose_checkpoint` returns.

    Nothing is deleted. A truncated ``data.pt``, which would stop veRL, is renamed to
    ``data.pt.damaged``.

    Returns:
        a note for each problem found and what was done about it.

    Raises:
        InvalidInputError: no checkpoint is complete.
    """
    chosen, note = choose_checkpoint(run_dir)
    if chosen is None:
        if not note and (reached := last_trained(run_dir)):
            note = f"the metrics reach step {reached}, and no checkpoint is there"
        return [f"{note}; the run starts from scratch"] if note else []
    if note:
        write_text(run_dir / TRACKER, str(step_of(chosen)))
    return [*([note] if note else []), *_settle_data_state(chosen)]


def abandon_checkpoints(run_dir: Path, attempt: int) -> Path | None:
    """Move all checkpoints and the tracker file into ``abandoned-N``, for an attempt that starts over.

    N is `attempt`, or the next number that is free.

    The tracker file is moved last, so that an interruption leaves checkpoints that match the recorded configuration.

    Returns:
        the new directory, or None if there was nothing to move.
    """
    found = [*checkpoints(run_dir), *(path for path in [run_dir / TRACKER] if os.path.lexists(path))]
    if not found:
        return None
    names = (run_dir / f"abandoned-{number}" for number in itertools.count(attempt))
    abandoned = next(name for name in names if not os.path.lexists(name))
    abandoned.mkdir()
    for path in found:
        path.rename(abandoned / path.name)
    return abandoned


def last_trained(run_dir: Path) -> int:
    """Return the last step that the metrics or ``run.json`` say was trained, 0 where they say nothing."""
    reached = [read_record(run_dir, needed=False).last_step or 0]
    with contextlib.suppress(ValueError, OSError):  # what cannot be read says nothing
        reached += [step.number for step in read_run(run_dir).line]
    return max(reached)


def _lost(run_dir: Path, there: Sequence[Path]) -> str:
    """Return why incomplete directories of a run without a tracker file cannot come from a kill in its first save.

    Return "" if they can. veRL writes the state of the data after the weights, and metrics of a step after its save.
    """
    if ended := [checkpoint for checkpoint in there if (checkpoint / DATA_STATE).exists()]:
        return f"{_names(ended)} has {DATA_STATE}, which is saved last, and is incomplete"
    reached = last_trained(run_dir) if there else 0
    if passed := [checkpoint for checkpoint in there if step_of(checkpoint) <= reached]:
        return f"{_names(passed)} is incomplete although step {reached} was trained, after that save"
    begun = [checkpoint for checkpoint in there if any(path.is_file() for path in checkpoint.rglob("*.pt"))]
    return f"{_names(begun)} are all incomplete, and a kill interrupts one save" if len(begun) > 1 else ""


def _names(there: Sequence[Path]) -> str:
    return ", ".join(checkpoint.name for checkpoint in sorted(there, key=step_of))


def links_of_saves(run_dir: Path, first_step: int) -> list[Path]:
    """Return the links that saves after `first_step` would write through; those of earlier checkpoints are read alone."""
    places = [run_dir / TRACKER, *(each for each in checkpoints(run_dir) if step_of(each) > first_step)]
    return [path for place in places for path in (place, *place.rglob("*")) if path.is_symlink()]


def damage(checkpoint: Path) -> list[str]:
    """Return a message for each file of a checkpoint that is missing or truncated, except ``data.pt``."""
    actor = checkpoint / "actor"
    if not actor.is_dir() or not any(actor.iterdir()):
        return ["actor is missing or empty"]
    paths = sorted(path for path in checkpoint.rglob("*.pt") if path != checkpoint / DATA_STATE)
    problems = [f"{path.relative_to(checkpoint)} is cut short" for path in paths if not is_whole(path)]
    recorded = {path.parent for path in checkpoint.rglob(FSDP_RECORD)}
    for directory in sorted({path.parent for path in paths} | recorded):
        found: dict[tuple[str, int], set[int]] = defaultdict(set)
        for kind, size, rank in shards(directory):
            found[kind, size].add(rank)
        lacking = [
            f"{kind} of rank {', '.join(map(str, missing))}"
            for (kind, size), ranks in found.items()
            if (missing := sorted(set(range(size)) - ranks))
        ]
        if not any(kind == "model" for kind, _ in found) and (found or not has_whole_model(directory)):
            lacking.append("the shards of the model")
        # Rank 0 writes it last: without it, whole kinds of files may be missing.
        if found and directory not in recorded:
            lacking.append(FSDP_RECORD)
        problems += [f"{directory.relative_to(checkpoint)} lacks {what}" for what in lacking]
    return problems


def has_whole_model(directory: Path) -> bool:
    """Return whether veRL saved a Hugging Face model (``hf_model``) beside the shards of a directory."""
    whole = directory / "huggingface"
    return any(whole.glob("*.safetensors")) or any(whole.glob("*.bin"))


def shards(directory: Path) -> list[tuple[str, int, int]]:
    """Return name, number of ranks and rank of each file ``NAME_world_size_N_rank_R.pt`` in a directory, sorted."""
    found = [_SHARD.fullmatch(path.name) for path in directory.glob("*.pt")]
    return sorted((match[1], int(match[2]), int(match[3])) for match in found if match)


def is_whole(path: Path) -> bool:
    """Return whether a file of ``torch.save``, a zip archive, is complete: the table of contents is at its end."""
    try:
        with open_foreign(real_path(path)) as file, zipfile.ZipFile(file):  # users move shards and leave links
            return True
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def checkpoints(run_dir: Path) -> Iterator[Path]:
    """Yield the directories ``global_step_N`` of an existing run directory, complete or not, in any order."""
    return (path for path in run_dir.iterdir() if _DIRECTORY.fullmatch(path.name) and path.is_dir())


def _settle_data_state(checkpoint: Path) -> list[str]:
    """Rename a truncated ``data.pt``, and return a note if it is missing or truncated; veRL can resume without it."""
    path = checkpoint / DATA_STATE
    if is_whole(path):
        return []
    found = "is missing"
    if path.exists():
        path.rename(path.with_name(f"{DATA_STATE}.damaged"))
        found = f"is cut short and now named {DATA_STATE}.damaged"
    return [f"{checkpoint.name}/{DATA_STATE} {found}; the order of the data starts over"]

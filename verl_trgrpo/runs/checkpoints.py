"""Which checkpoint a run goes on from, where the last save may not have come to its end.

veRL writes ``global_step_N/actor`` (every rank its own files), then ``data.pt``, then the tracker file, which alone decides
where a run resumes; it believes that file without a look at the directory. This module looks.
"""

from __future__ import annotations

import re
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from verl_trgrpo.common.files import write_text
from verl_trgrpo.common.findings import InvalidInputError

TRACKER = "latest_checkpointed_iteration.txt"
DATA_STATE = "data.pt"

_DIRECTORY = re.compile(r"global_step_(\d+)")
_SHARD = re.compile(r"(\w+)_world_size_(\d+)_rank_(\d+)\.pt")


def step_of(checkpoint: Path) -> int:
    """The N of ``global_step_N``."""
    return int(checkpoint.name.rsplit("_", 1)[1])


def latest_checkpoint(run_dir: Path) -> Path | None:
    """Directory of the latest checkpoint of a run by veRL's own tracker file, or None."""
    tracker = run_dir / TRACKER
    if not tracker.is_file():
        return None
    step = tracker.read_text(errors="replace").strip()
    checkpoint = run_dir / f"global_step_{step}"
    return checkpoint if step.isdecimal() and checkpoint.is_dir() else None


def settle_checkpoint(run_dir: Path) -> list[str]:
    """Make the tracker file name a checkpoint that can be loaded: its own, or else the latest that is whole.

    Without a tracker file the run starts from scratch, as veRL does. Nothing is deleted: a ``data.pt`` that was cut short
    is renamed to ``data.pt.damaged``, without which veRL would stop at it.

    Returns:
        what was wrong and what was done about it, a sentence each; empty where nothing was.

    Raises:
        InvalidInputError: when the tracker names none and there is no other; starting over is the user's decision.
    """
    tracker = run_dir / TRACKER
    if not tracker.is_file():
        return []
    tracked = latest_checkpoint(run_dir)
    problems = damage(tracked) if tracked else [f"{TRACKER} says {tracker.read_text(errors='replace')!r}"]
    if tracked and not problems:
        return _settle_data_state(tracked)
    complaint = f"{tracked.name if tracked else run_dir.name}: {'; '.join(problems)}"
    others = [other for other in checkpoints(run_dir) if other != tracked and not damage(other)]
    if not others:
        message = (
            f"{run_dir} has no checkpoint that can be loaded ({complaint}); put one back, or start over with "
            "trainer.resume_mode=disable"
        )
        raise InvalidInputError([message])
    chosen = max(others, key=step_of)
    write_text(tracker, str(step_of(chosen)))
    note = f"{complaint}; going on from {chosen.name}, the latest checkpoint that is whole"
    return [note, *_settle_data_state(chosen)]


def abandon_checkpoints(run_dir: Path, attempt: int) -> Path | None:
    """Move all checkpoints and the tracker file out of the way of attempt number `attempt`, which starts over.

    Nothing is deleted; returns where they are now, None when there were none. The tracker goes last: until then an
    interruption leaves checkpoints that still belong to the recorded configuration.
    """
    found = [*checkpoints(run_dir), *(path for path in [run_dir / TRACKER] if path.is_file())]
    if not found:
        return None
    abandoned = run_dir / f"abandoned-{attempt}"
    abandoned.mkdir(exist_ok=True)
    for path in found:
        path.rename(abandoned / path.name)
    return abandoned


def damage(checkpoint: Path) -> list[str]:
    """What is missing or cut short in a checkpoint, ``data.pt`` excepted; a sentence each."""
    actor = checkpoint / "actor"
    if not actor.is_dir() or not any(actor.iterdir()):
        return ["actor is missing or empty"]
    problems = []
    ranks: dict[tuple[Path, str, int], set[int]] = defaultdict(set)
    for path in sorted(checkpoint.rglob("*.pt")):
        if path == checkpoint / DATA_STATE:
            continue
        if not is_whole(path):
            problems.append(f"{path.relative_to(checkpoint)} is cut short")
        if match := _SHARD.fullmatch(path.name):
            ranks[path.parent, match[1], int(match[2])].add(int(match[3]))
    for (directory, kind, size), found in ranks.items():
        if missing := sorted(set(range(size)) - found):
            problems.append(f"{directory.relative_to(checkpoint)} lacks {kind} of rank {', '.join(map(str, missing))}")
    # The last file of rank 0: before it, even a kind of which there is no file yet may be missing.
    sharded = {directory for directory, _, _ in ranks}
    problems += [
        f"{directory.relative_to(checkpoint)} lacks fsdp_config.json"
        for directory in sorted(sharded)
        if not (directory / "fsdp_config.json").is_file()
    ]
    return problems


def is_whole(path: Path) -> bool:
    """Whether a file of ``torch.save`` has its end: a zip archive has its table of contents there."""
    if not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path):
            return True
    except (zipfile.BadZipFile, OSError):
        return False


def checkpoints(run_dir: Path) -> Iterator[Path]:
    """Directories ``global_step_N`` of a run directory that exists, whole or not, in no order."""
    return (path for path in run_dir.iterdir() if _DIRECTORY.fullmatch(path.name) and path.is_dir())


def _settle_data_state(checkpoint: Path) -> list[str]:
    """Notes about ``data.pt``, which veRL can do without."""
    path = checkpoint / DATA_STATE
    if is_whole(path):
        return []
    found = "is missing"
    if path.exists():
        path.rename(path.with_name(f"{DATA_STATE}.damaged"))
        found = f"is cut short and now named {DATA_STATE}.damaged"
    return [f"{checkpoint.name}/{DATA_STATE} {found}; the order of the data starts over"]

"""Say what to do about known causes, by the words of their messages."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator


def shared_memory() -> str:
    """Say how much shared memory there is."""
    with contextlib.suppress(OSError):
        usage = shutil.disk_usage("/dev/shm")
        return (
            f"shared memory was full or is small: {usage.free >> 20} of {usage.total >> 20} MiB of /dev/shm are free now; "
            "start the container with more (--shm-size=64g, or --ipc=host)"
        )
    return "shared memory (/dev/shm) is full or small; start the container with more (--shm-size=64g, or --ipc=host)"


_KNOWN = (
    (
        re.compile(r"CANCELLED AT .{0,200}DUE TO TIME LIMIT"),
        "the scheduler ended the job at its time limit: the same command resumes from the latest checkpoint; ask for more time "
        "(sbatch --time), or save more often (trainer.save_freq)",
    ),
    (
        re.compile(r"\*\*\* (?:JOB|STEP) .{1,300} CANCELLED AT (?!.{0,200}DUE TO TIME LIMIT)"),
        "the scheduler ended the job, or whoever cancelled it: the same command resumes from the latest checkpoint",
    ),
    (
        re.compile(r"Detected \d{1,9} oom[-_]kill event"),
        "the job used more memory than it asked for: ask for more (sbatch --mem), or give each rank less to hold",
    ),
    (
        re.compile(r"Resource temporarily unavailable|can't start new thread|pthread_create failed"),
        "the system allows no more processes or threads: raise `ulimit -u` (or pids.max of the cgroup), or give Ray fewer CPUs "
        "(ray_kwargs.ray_init.num_cpus)",
    ),
    (
        re.compile(r"Failed to register worker to Raylet|have not registered within the timeout"),
        "Ray's workers do not start, often because too many start at once: give Ray fewer CPUs (ray_kwargs.ray_init.num_cpus); "
        "raylet.out and python-core-worker*.log below /tmp/ray/session_latest/logs say more",
    ),
    (
        re.compile(r"Local disk is full|disk's utilization is over capacity"),
        "Ray keeps its objects on the disk of /tmp/ray, which is full: free some space there, or name another directory "
        "(++ray_kwargs.ray_init._temp_dir)",
    ),
    (
        re.compile(r"Too many open files"),
        "raise `ulimit -n` before the command, to 65536; Ray opens files for each CPU (ray_kwargs.ray_init.num_cpus)",
    ),
    (
        re.compile(r"EADDRINUSE|[Aa]ddress already in use"),
        "another process has the port, perhaps one of an earlier run: `ss -ltnp` says which; end that process",
    ),
    (
        re.compile(r"undefined symbol|cannot open shared object file"),
        "the named package was built for another version of torch or CUDA: install its build for those that are here",
    ),
    (
        re.compile(r"srcIndex < srcSelectDimSize|index out of bounds"),
        "an index is outside of its tensor, most often a token id beyond the embedding: compare the tokenizer with the model's "
        "vocab_size",
    ),
    (
        re.compile(r"probability tensor contains either"),
        "the policy's probabilities are not finite: `verl-trgrpo health` says since when",
    ),
    (re.compile(r"Python\.h"), "the compiler lacks the headers of this Python: install python3-dev"),
    (re.compile(r"SIGBUS|Bus error"), shared_memory),
    (
        re.compile(r"SIGSEGV|Segmentation fault|illegal memory access"),
        "native code read memory that is not its own: versions of torch, vLLM and the driver that do not fit, or a fault of a "
        "kernel; CUDA_LAUNCH_BLOCKING=1 makes the traceback name the operation",
    ),
    (
        re.compile(r"uncorrectable ECC error|CUDA error: ECC"),
        "the card itself is at fault: `nvidia-smi -q -d ECC,PAGE_RETIREMENT`; reset the card, or train on others "
        "(CUDA_VISIBLE_DEVICES)",
    ),
    (
        re.compile(r"Connection closed by peer|Connection reset by peer|Broken pipe"),
        "another rank ended first and closed the connection: its own last lines have the cause",
    ),
)


def remedies(text: str) -> Iterator[str]:
    """Yield what to do about each known cause that a text names."""
    for pattern, remedy in _KNOWN:
        if pattern.search(text):
            yield remedy() if callable(remedy) else remedy

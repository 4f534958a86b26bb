"""Data files of a run: whether they can be read to their end, before anything is started."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf


def data_files(config: DictConfig, key: str) -> list[str]:
    """Local files under ``key``, which holds one or a list."""
    files = OmegaConf.select(config, key)
    return [file for file in ([files] if isinstance(files, str) else list(files or [])) if "://" not in file]


def data_problems(config: DictConfig) -> list[str]:
    """Complaints about training and validation files that are missing, broken, or too small for a step."""
    problems = []
    for key in ("data.train_files", "data.val_files"):
        for file in data_files(config, key):
            path = Path(file).expanduser()
            if not path.exists():
                problems.append(f"{key}={file} does not exist; build it first, e.g. with data_prep/kk.py")
            elif path.suffix == ".parquet":
                problems += column_problems(key, path, config)
    return problems or row_problems(config)


def column_problems(key: str, path: Path, config: DictConfig) -> list[str]:
    """Complaints about one parquet file; the columns that veRL and the rewards need are read to their last row."""
    import pyarrow as pa  # not at the top: every command imports this module, also for its --help
    import pyarrow.parquet as pq

    needed = sorted({config.data.prompt_key, "data_source", "reward_model"})
    try:
        with pq.ParquetFile(path) as file:
            columns = set(file.schema_arrow.names)
            if missing := sorted(set(needed) - columns):
                return [
                    f"{key}={path} lacks the column {', '.join(missing)} (it has {', '.join(sorted(columns))}); "
                    "see data_prep/kk.py"
                ]
            # A file that was damaged in the middle has a sound schema: only reading shows it.
            rows = sum(batch.num_rows for batch in file.iter_batches(columns=needed))
    except (pa.ArrowException, OSError) as error:
        return [f"{key}={path} cannot be read as parquet ({error}); build it again"]
    return [] if rows else [f"{key}={path} has no rows; build it again"]


def row_problems(config: DictConfig) -> list[str]:
    """A complaint when the training files do not fill one step; :func:`column_problems` has to be empty."""
    rows, prompts = training_rows(config), config.data.train_batch_size
    if rows is None or rows >= prompts:
        return []
    return [
        f"data.train_files has {rows} rows, fewer than the data.train_batch_size={prompts} prompts of one step; "
        "add rows, or lower the batch size"
    ]


def training_rows(config: DictConfig) -> int | None:
    """Rows of the training files, before veRL's filter; None where a file is missing or no parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [Path(file).expanduser() for file in data_files(config, "data.train_files")]
    try:
        rows = sum(pq.read_metadata(file).num_rows for file in files)
    except (pa.ArrowException, OSError):
        return None
    limit = config.data.get("train_max_samples", -1)
    return (min(rows, limit) if limit and limit > 0 else rows) if files else None

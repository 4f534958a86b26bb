"""Read data files, open them as veRL's `RLHFDataset` does through the library `datasets`, and check their columns."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_trgrpo.common.findings import Finding
from verl_trgrpo.common.foreign import JSON_LIMIT, lines_of, open_foreign, parse_json, read_foreign, real_path
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.rows import (
    COLUMNS,
    REQUIRED_COLUMNS,
    RESERVED_KEYS,
    SINGLE_TURN,
    Row,
    UnreadableFileError,
    check_fetched,
    check_rows,
    extra_info_of,
    ground_truth_of,
    naming_damage,
    read_schema,
    reserved_problem,
)

if TYPE_CHECKING:  # these imports take a second
    import pyarrow as pa

_ROWS_AT_ONCE = 10_000

# Far more than data have; pyarrow's reader takes the stack for each level and crashes at some thousands.
_MAX_DEPTH = 500
_JSON_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

_KINDS = {".parquet": "parquet", ".json": "json", ".jsonl": "json"}

# Names of columns that are not those of a row any more when veRL's agent loops hand the row on, and what becomes of them.
# tests/verl_plugin/test_canary.py collects them from veRL's code.
_ARGUMENTS = ("output", "sampling_params", "self", "session_id", "trace", "trajectory", "validate")
_STEERING = ("__do_sample__", "__rollout_n__", "priority", "request_id")
_ROLLOUT_FIELDS = (
    "__num_turns__", "acc", "extra_fields", "max_global_steps", "metrics", "min_global_steps", "mm_processor_kwargs",
    "mm_processor_output", "num_turns", "processing_times", "prompts", "response_mask", "responses", "reward_scores",
    "rm_scores", "rollout_log_probs", "routed_experts", "spec_num_accepted_tokens", "spec_num_draft_tokens",
    "spec_num_verify_steps", "teacher_ids", "teacher_logprobs", "tool_call_counts", "tool_calls_times", "tool_extra_fields",
)  # fmt: skip
_BATCH_FIELDS = (
    "advantages", "attention_mask", "entropy", "entropys", "input_ids", "log_probs", "loss_mask", "multi_modal_inputs",
    "old_log_probs", "position_ids", "prompt_length", "ref_log_prob", "response_length", "returns", "reward_baselines",
    "rollout_is_weights", "sum_pi_squared", "token_level_rewards", "token_level_scores", "values",
)  # fmt: skip
_REPLACED = ("dummy_tensor", "global_steps", "interaction_kwargs", "raw_prompt", "tools_kwargs", "uid")
RESERVED_COLUMNS = {
    **dict.fromkeys(_ARGUMENTS, "is an argument of veRL's agent loops, which fail for each row"),
    **dict.fromkeys(_STEERING, "steers veRL's rollout of the row, past the options of the run"),
    **dict.fromkeys(_ROLLOUT_FIELDS, "replaces what the rollout wrote"),
    **dict.fromkeys(_BATCH_FIELDS, "is a field of veRL's batch, which replaces it"),
}
"""Columns that a data file must not have, with the reason."""


def matching_files(name: str) -> list[str]:
    """Return the files that a pattern matches, as `datasets` expands what veRL hands to it; any other name, or none, as it is."""
    local = "://" not in name and glob.has_magic(name) and not Path(name).expanduser().exists()
    # Unlike Path.glob, this leaves out hidden files, as `datasets` does
    found = sorted(glob.glob(str(Path(name).expanduser()), recursive=True)) if local else []  # noqa: PTH207
    return found or [name]


@dataclass(frozen=True)
class DataFile:
    """A data file that veRL can open: its columns as `datasets` casts them, its number of rows, and the rows if it is JSON."""

    path: Path
    schema: pa.Schema
    rows: int
    content: pa.Table | None = None

    def tables(self, columns: Iterable[str]) -> Iterator[pa.Table]:
        """Yield the rows in parts with those of the columns that it has. Raises an UnreadableFileError if the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = [name for name in dict.fromkeys(columns) if name in self.schema.names]
        if self.content is not None:
            yield self.content.select(names)
            return
        with naming_damage(self.path), open_foreign(real_path(self.path)) as opened, pq.ParquetFile(opened) as file:
            for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=names):
                yield pa.Table.from_batches([batch])

    def read(self, columns: Iterable[str], prompt_key: str = "prompt") -> Iterator[dict[str, Any]]:
        """Yield the rows one by one, with the column `prompt_key` under the name prompt; raises as `tables`."""
        with naming_damage(self.path):
            for part in self.tables([prompt_key if column == "prompt" else column for column in columns]):
                for row in part.to_pylist():
                    yield row if prompt_key == "prompt" else {**row, "prompt": row.get(prompt_key)}

    def sample(self, columns: Iterable[str], most: int) -> dict[int, dict[str, Any]]:
        """Return rows by number, at most `most`, evenly spread; raises as `tables`."""
        wanted = spread(self.rows, most)
        rows: dict[int, dict[str, Any]] = {}
        start = 0
        for part in self.tables(columns):
            here = [number for number in wanted if start <= number < start + part.num_rows]
            taken = part.take([number - start for number in here]).to_pylist() if here else []
            rows.update(zip(here, taken, strict=True))
            start += part.num_rows
        return rows


def spread(total: int, most: int) -> list[int]:
    """Return at most `most` numbers below `total`, evenly spread, with the first and the last."""
    count = min(total, most)
    return [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]


def read_rows(
    path: Path, columns: Iterable[str] | None = COLUMNS, prompt_key: str = "prompt"
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a Parquet, JSON or JSON Lines file as `DataFile.read` does; columns None for all. Nothing is checked.

    Raises:
        UnreadableFileError: the file does not exist, is of another kind, or is damaged.
    """
    file = open_as_verl(path) if _KINDS.get(path.suffix) == "json" else DataFile(path, *read_schema(path))
    if twice := [name for name, count in Counter(file.schema.names).items() if count > 1]:
        raise UnreadableFileError(f"{path} has several columns named {', '.join(twice)}; rename all but one")
    yield from file.read(file.schema.names if columns is None else columns, prompt_key)


def load_rows(path: Path, default_agent: str = SINGLE_TURN, prompt_key: str = "prompt") -> list[Row]:
    """Return all rows of a data file, checked; those without an agent_name have the `default_agent`.

    Raises:
        ValueError: the file cannot be read, has no rows, or has rows that veRL or a reward cannot use (the first few are
            named).
    """
    rows = [*read_rows(path, (*COLUMNS, "agent_name"), prompt_key)]
    if not rows:
        raise ValueError(f"{path}: it has no rows; build the file again")
    try:
        check_rows(rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    return [
        Row(
            position,
            row["data_source"],
            [{"role": message["role"], "content": message["content"]} for message in row["prompt"]],
            ground_truth_of(row),
            dict(extra_info_of(row)),
            row.get("agent_name") or default_agent,
        )
        for position, row in enumerate(rows)
    ]


def open_as_verl(path: Path) -> DataFile:
    """Open a Parquet, JSON or JSON Lines file as veRL does.

    Raises:
        UnreadableFileError: veRL would not open it, or would open other files.
    """
    kind = next((kind for ending, kind in _KINDS.items() if str(path).endswith(ending)), None)
    if kind is None:
        raise UnreadableFileError(
            f"{path} does not end in {', '.join(_KINDS)}, which veRL requires; convert or rename the file"
        )
    if not path.is_file():
        raise UnreadableFileError(f"{path} does not exist; check the path")
    import datasets  # takes a second

    _check_pattern(path)
    if kind == "json":
        return _open_json(path)
    schema, rows = read_schema(path)
    try:
        features = datasets.Features.from_arrow_schema(schema)
    except Exception as error:  # a feature that this version of datasets does not know, or an unusual type
        raise UnreadableFileError(
            f"{path} cannot be opened with datasets {datasets.__version__}, as veRL does ({first_line(error)}); write the "
            "file again without the metadata of Hugging Face, or install the version that wrote it"
        ) from error
    return DataFile(path, features.arrow_schema, rows)


def _check_pattern(path: Path) -> None:
    """Check that `datasets`, which takes a path for a pattern, finds this file and no other."""
    from datasets.data_files import DataFilesDict, sanitize_patterns

    try:
        found = DataFilesDict.from_patterns(sanitize_patterns(str(path)), base_path=str(Path.cwd()))["train"]
    except (FileNotFoundError, KeyError):
        found = []
    if len(found) != 1 or not Path(found[0]).exists() or not path.samefile(found[0]):
        names = ", ".join(Path(name).name for name in found[:3]) or "no file"
        raise UnreadableFileError(
            f"veRL reads the name {path} as a pattern, and would open {names}; rename the file without []*?"
        )


def _open_json(path: Path) -> DataFile:
    import pyarrow as pa
    from datasets.io.json import JsonDatasetReader

    check_fetched(path)
    check_json_depth(path)
    with open_foreign(real_path(path)) as file:
        is_list = file.read(4096).lstrip().startswith(b"[")
    try:
        if is_list:  # whose reader takes the last of a key that stands twice; that of lines refuses both
            parse_json(read_foreign(real_path(path), JSON_LIMIT))
        rows = JsonDatasetReader(str(path), streaming=True).read().with_format("arrow")
        parts = list(rows.iter(_ROWS_AT_ONCE))
        content = pa.concat_tables(parts) if parts else pa.table({})
    except Exception as error:  # the reader raises many types
        raise UnreadableFileError(
            f"{path} is not a JSON file that veRL reads ({first_line(error)}); check its lines"
        ) from error
    return DataFile(path, content.schema, content.num_rows, content)


def check_json_depth(path: Path) -> None:
    """Raise an UnreadableFileError for a JSON file that is nested so deeply that its reader would end the process."""
    with open_foreign(real_path(path), JSON_LIMIT) as file:
        depth = 0
        for number, line in enumerate(lines_of(file, path, JSON_LIMIT), start=1):
            if path.suffix == ".jsonl":
                depth = 0  # each line stands for itself
                if line.count(b"[") + line.count(b"{") <= _MAX_DEPTH:
                    continue
            for bracket in _JSON_STRING.sub(b"", line).translate(None, _NO_BRACKETS):
                depth += 1 if bracket in b"[{" else -1
                if depth > _MAX_DEPTH:
                    raise UnreadableFileError(
                        f"{path}, line {number}: values are nested more than {_MAX_DEPTH} deep; correct or remove the line"
                    )


def column_findings(where: str, schema: pa.Schema, prompt_key: str = "prompt") -> Iterator[Finding]:
    """Check that a file has the columns that veRL and the rewards read, with their types, and none that veRL uses itself."""
    required = [prompt_key if column == "prompt" else column for column in REQUIRED_COLUMNS]
    if missing := [column for column in required if column not in schema.names]:
        found = ", ".join(schema.names) or "no columns"
        named = "name the column of the prompts with data.prompt_key (--prompt-key), or " * (prompt_key in missing)
        yield Finding.error(where, f"missing column {', '.join(missing)} (found {found}); {named}see docs/data.md")
    for name, count in Counter(schema.names).items():
        if count > 1:
            yield Finding.error(where, f"has {count} columns named {name}; veRL cannot load them, rename one")
        elif name in RESERVED_COLUMNS:
            yield Finding.error(where, f"column {name}: {RESERVED_COLUMNS[name]}; rename or drop the column")
        elif name in _REPLACED and name != prompt_key:
            yield Finding.warning(
                where,
                f"column {name}: nothing reads its values, because veRL replaces the column; rename or drop the column",
            )
        elif problem := _type_problem(name, schema.field(name).type, prompt_key):
            yield Finding.error(where, f"{name} is {schema.field(name).type}; {problem}")


def _type_problem(name: str, kind: pa.DataType, prompt_key: str) -> str:
    """Return why veRL cannot use a column of this type; "" if it can, or if all values are null."""
    import pyarrow as pa

    types = pa.types
    if types.is_null(kind) or isinstance(kind, pa.BaseExtensionType):
        return ""
    is_string = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
    if name == prompt_key:
        is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
        fields = _field_names(kind.value_type) if is_list else set()
        return "" if fields >= {"role", "content"} else "veRL needs a list of chat messages, each with role and content"
    if name == "reward_model" and "ground_truth" not in _field_names(kind):
        return "the rewards need a struct with ground_truth"
    if name == "extra_info" and not types.is_struct(kind):
        return "veRL needs a struct, such as one with split and index"
    return "it must be a string" if name in ("data_source", "agent_name") and not is_string else ""


def _field_names(kind: pa.DataType) -> set[str]:
    import pyarrow as pa

    return {field.name for field in kind} if pa.types.is_struct(kind) else set()


def concatenation_findings(files: Mapping[str, DataFile]) -> Iterator[Finding]:
    """Check that files, given by name, can be loaded together: veRL concatenates them with `datasets`."""
    import datasets
    import pyarrow as pa

    def one_row(schema: pa.Schema) -> datasets.Dataset:  # data sets without rows are left out
        return datasets.Dataset(pa.table([pa.nulls(1, field.type) for field in schema], schema=schema))

    names = [name for name, file in files.items() if file.rows]
    if len(names) < 2:
        return
    fitting: list[datasets.Dataset] = []
    for name in names:
        schema, first = files[name].schema, files[names[0]].schema
        difference = first_difference(first, schema)
        shown = "{} is {} in {} and {} here".format(*difference[:2], names[0], difference[2]) if difference else ""
        try:
            datasets.concatenate_datasets([*fitting, one_row(schema)])
        except Exception as error:  # the library raises several types
            yield Finding.error(
                name, f"{shown or first_line(error)}; veRL cannot load these together; cast one of the two"
            )
            continue
        fitting.append(one_row(schema))
        if difference and "missing" in difference:
            yield Finding.warning(name, f"{shown}; veRL fills in null")


def first_difference(one: pa.Schema, other: pa.Schema) -> tuple[str, str, str] | None:
    """Return path and types of the first difference between two schemas, regardless of the order of fields, or None.

    A type is "missing" if only the other schema has the field. Differing types come before missing fields.
    """
    ours, theirs = dict(_leaf_types("", one)), dict(_leaf_types("", other))
    pairs = [(path, ours.get(path, "missing"), theirs.get(path, "missing")) for path in dict.fromkeys([*ours, *theirs])]
    different = [pair for pair in pairs if pair[1] != pair[2] and "null" not in pair]
    return min(different, key=lambda pair: "missing" in pair, default=None)


def _leaf_types(path: str, fields: Iterable[pa.Field]) -> Iterator[tuple[str, str]]:
    """Yield path and type of every field without fields below it."""
    import pyarrow as pa

    for field in fields:
        kind, here = field.type, f"{path}.{field.name}" if path else field.name
        if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
            kind, here = kind.value_type, f"{here}[]"
        if pa.types.is_struct(kind):
            yield from _leaf_types(here, kind)
        else:
            yield here, str(kind)


def row_problems(
    file: DataFile, prompt_key: str, agents: Iterable[str] | None = None
) -> Iterator[tuple[str, int, int]]:
    """Yield what rows lack that veRL and the rewards need, and reserved keys, with the number of such rows and the first of them.

    The file has the types that `column_findings` checks; `agents` are those that rows may name. Raises as `DataFile.tables`.
    """
    count: Counter[str] = Counter()
    first: dict[str, int] = {}
    start = 0
    columns = [prompt_key, "data_source", "reward_model", "agent_name"]
    if "extra_info" in file.schema.names:
        names = _field_names(file.schema.field("extra_info").type)
        columns += ["extra_info"] if not names or RESERVED_KEYS & names else []  # a large one is left out
    for part in file.tables(columns):
        for problem, mask in _masks(part, prompt_key, None if agents is None else set(agents)):
            if mask.true_count:
                count[problem] += mask.true_count
                first.setdefault(problem, start + mask.index(True).as_py())
        start += part.num_rows
    for problem, rows in count.items():
        yield problem, rows, first[problem]


def _masks(part: pa.Table, prompt_key: str, agents: set[str] | None) -> Iterator[tuple[str, pa.BooleanArray]]:
    """Yield a problem with the rows of a part that have it, each row under one problem of a column."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: part[name].combine_chunks() for name in part.column_names}
    for name in (prompt_key, "data_source", "reward_model"):
        if name in columns:
            yield f"{name} is null", columns[name].is_null()
    truths = columns.get("reward_model")
    if truths is not None and "ground_truth" in _field_names(truths.type):
        values = pc.struct_field(truths, "ground_truth")
        if "target" in _field_names(values.type):  # as search questions have it
            values = pc.struct_field(values, "target")
        empty = values.is_null(nan_is_null=True)
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            empty = pc.or_(empty, pc.fill_null(pc.equal(pc.utf8_trim_whitespace(values), ""), False))
        elif pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
            empty = pc.or_(empty, pc.fill_null(pc.equal(pc.list_value_length(values), 0), False))
        yield "reward_model.ground_truth is empty", pc.and_(empty, truths.is_valid())
    if "extra_info" in columns:
        infos = [extra_info_of({"extra_info": value}) for value in columns["extra_info"].to_pylist()]
        for key in sorted(RESERVED_KEYS):
            yield reserved_problem(key), pa.array([info.get(key) is not None for info in infos], pa.bool_())
    if agents is not None and (named := columns.get("agent_name")) is not None:
        for name in named.unique().to_pylist():
            if name not in agents:
                mask = named.is_null() if name is None else pc.fill_null(pc.equal(named, name), False)
                yield f"agent_name is {'null' if name is None else name}", mask

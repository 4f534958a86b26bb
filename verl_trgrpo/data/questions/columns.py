"""What is asked of the columns of a file, and of files that are loaded together."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import first_line
from verl_trgrpo.data.questions.context import DataQuestion, Found, Remark
from verl_trgrpo.data.rows import REQUIRED_COLUMNS
from verl_trgrpo.data.sources import ANSWER_COLUMNS, PROBLEM_COLUMNS, plain_name
from verl_trgrpo.data.verl_files import DataFile

if TYPE_CHECKING:  # these imports take a second
    import pyarrow as pa

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


def layout_problems(schema: pa.Schema, prompt_key: str = "prompt", path: Path | None = None) -> list[str]:
    """Return a message for each column that veRL and the rewards read and that is missing or of another type.

    The rows of such a file cannot be asked. With the `path` of a file of questions and answers, a message has the command that
    builds veRL's file from it.
    """
    required = [prompt_key if column == "prompt" else column for column in REQUIRED_COLUMNS]
    problems = []
    if missing := [column for column in required if column not in schema.names]:
        found = ", ".join(schema.names) or "no columns"
        if path and _is_raw(schema.names):
            words = ["verl-trgrpo", "data", "build", "deepscaler", "--source", str(path), "--out", _built(path)]
            reason = f"these are questions and answers that veRL cannot read yet (missing {', '.join(missing)}; found {found})"
            return [f"{reason}; build the file with `{shlex.join(words)}`, and name the file that this writes"]
        named = "name the column of the prompts with data.prompt_key (--prompt-key), or " * (prompt_key in missing)
        problems.append(f"missing column {', '.join(missing)} (found {found}); {named}see docs/data_check.md")
    for name, count in Counter(schema.names).items():
        if count > 1:
            problems.append(f"has {count} columns named {name}; veRL cannot load them, rename one")
        elif problem := _type_problem(name, schema.field(name).type, prompt_key):
            problems.append(f"{name} is {schema.field(name).type}; {problem}")
    return problems


def _is_raw(names: Iterable[str]) -> bool:
    """Return whether columns are those of questions with their answers, as a builder reads them, and none is veRL's own."""
    plain = {*map(plain_name, names)}
    sides = ({*map(plain_name, columns)} & plain for columns in (PROBLEM_COLUMNS, ANSWER_COLUMNS))
    return all(sides) and not {"reward_model", "data_source"} & {*names}


def _built(path: Path) -> str:
    """Return the directory beside a raw file for what is built from it."""
    return str(path.with_name(f"{path.name.partition('.')[0]}_verl"))


def column_remarks(schema: pa.Schema, prompt_key: str = "prompt", path: Path | None = None) -> Iterator[Remark]:
    """Ask whether a file has the columns that veRL and the rewards read, with their types, and none that veRL uses itself."""
    for problem in layout_problems(schema, prompt_key, path):
        yield DataQuestion.COLUMNS, Level.ERROR, problem
    if path and _is_raw(schema.names):
        return
    for name in dict.fromkeys(schema.names):
        remedy = "rename or drop the column"
        if name in RESERVED_COLUMNS:
            yield DataQuestion.COLUMNS, Level.ERROR, f"column {name}: {RESERVED_COLUMNS[name]}; {remedy}"
        elif name in _REPLACED and name != prompt_key:
            reason = "nothing reads its values, because veRL replaces the column"
            yield DataQuestion.COLUMNS, Level.WARNING, f"column {name}: {reason}; {remedy}"
    if "extra_info" not in schema.names:
        yield DataQuestion.COLUMNS, Level.WARNING, "missing column extra_info; veRL then gives every row the index 0"


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


def fits_together(files: Mapping[str, DataFile]) -> Iterator[Found]:
    """Ask whether files, given by name, can be loaded together: veRL concatenates them with `datasets`."""
    names = [name for name, file in files.items() if file.rows]
    if len(names) < 2:
        return
    import datasets
    import pyarrow as pa

    def one_row(schema: pa.Schema) -> datasets.Dataset:  # data sets without rows are left out
        return datasets.Dataset(pa.table([pa.nulls(1, field.type) for field in schema], schema=schema))

    fitting: list[datasets.Dataset] = []
    for name in names:
        schema, first = files[name].schema, files[names[0]].schema
        difference = first_difference(first, schema)
        shown = "{} is {} in {} and {} here".format(*difference[:2], names[0], difference[2]) if difference else ""
        try:
            datasets.concatenate_datasets([*fitting, one_row(schema)])
        except Exception as error:  # the library raises several types
            reason = f"{shown or first_line(error)}; veRL cannot load these together; cast one of the two"
            yield Found(DataQuestion.COLUMNS, Level.ERROR, reason, name)
            continue
        fitting.append(one_row(schema))
        if difference and "missing" in difference and difference[0] != "agent_name":
            yield Found(DataQuestion.COLUMNS, Level.WARNING, f"{shown}; veRL fills in null", name)
    if any("agent_name" in files[name].schema.names for name in names):
        for name in names:
            if "agent_name" not in files[name].schema.names:
                reason = "lacks the column agent_name, which another file has, so veRL fills in null; add the column"
                yield Found(DataQuestion.COLUMNS, Level.ERROR, reason, name)


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

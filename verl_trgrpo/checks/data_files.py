"""Check the data of a run as veRL reads it: columns, rows, agent loops, rewards, and lengths of prompts and searches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.view import DATA, DATA_SET, OWN_REWARDS, TRAINING, RunView
from verl_trgrpo.common.findings import Finding, InvalidInputError, Level, findings_of
from verl_trgrpo.common.text import as_plain_yaml, count_of, did_you_mean
from verl_trgrpo.data.prompts import TOOLS, RolloutPrompts, agent_loops, tool_schemas
from verl_trgrpo.data.rows import UnreadableFileError, is_chat
from verl_trgrpo.data.verl_files import DataFile, column_findings, concatenation_findings, row_problems, spread
from verl_trgrpo.runs.compose import resolved
from verl_trgrpo.runs.keys import AGENT, REWARD, REWARD_MODEL, ROLLOUT, selected
from verl_trgrpo.tasks.ground_truths import LITERAL_GOLDS, literal_findings, reward_findings
from verl_trgrpo.tasks.registry import (
    DEFAULT_REWARD_KEY,
    default_reward_problem,
    guessed_reward,
    has_reward,
    known_agent_loops,
    known_agents,
    unknown_source,
)
from verl_trgrpo.tasks.task import imported
from verl_trgrpo.tasks.whole_files import WholeFile

_MANAGER = f"{AGENT}.agent_loop_manager_class"
# Data sources without a reward that are named one by one.
_MAX_SOURCES = 5
# Rows of a file whose ground truth is scored.
_SCORED_ROWS = 50
_LIMIT = "data.max_prompt_length"
# Prompts of a file that are tokenized, at most; a thousand take about a second.
_MOST = 4000


def data_findings(view: RunView) -> list[Finding]:
    """Check existing data files as veRL opens them: columns, rows, rewards, agent loops, and validation on training data."""
    config = view.config
    findings = default_reward_findings(config)
    if own := view.data_set:
        message = f"{DATA_SET}={own}: this class reads the files, so columns, rows and prompts were not checked"
        return [*findings, Finding.not_checked(DATA_SET, message)]
    loops, problems = agent_loop_findings(config)
    findings += problems
    for key in DATA:
        remote = [file for file in view.names(key) if "://" in file]
        findings += [Finding.not_checked(key, f"{key}={file}: is not a local file") for file in remote]
        findings += split_findings(key, view, loops)
    training, validation = ({path.resolve() for path in view.local(key)} for key in DATA)
    if shared := sorted(path for path in training & validation if path.is_file()):
        message = f"data.val_files={shared[0]}: is one of data.train_files; validate with another file"
        findings.append(Finding.warning("data.val_files", message))
    return findings


def agent_loop_findings(config: DictConfig) -> tuple[set[str] | None, list[Finding]]:
    """Return the agent loops that rows may name, None where they are not known, and check the files of loops and tools."""
    if manager := selected(config, _MANAGER):
        message = f"{_MANAGER}={manager}: has its own agent loops, so agent_name was not checked"
        return None, [Finding.not_checked(_MANAGER, message)]
    try:
        tool_schemas(config, TOOLS)
    except InvalidInputError as error:
        return None, [Finding.error(f"{TOOLS}.tool_config_path", str(error))]
    except ValueError:  # a schema in Python code, which is not executed; the check of lengths says so
        pass
    try:
        loops = agent_loops(config)
    except InvalidInputError as error:
        return None, [Finding.error(f"{AGENT}.agent_loop_config_path", str(error))]
    key = f"{AGENT}.default_agent_loop"
    if (default := selected(config, key)) in loops:
        return loops, []
    hint = did_you_mean(str(default), sorted(loops))
    return loops, [Finding.error(key, f"{key}={as_plain_yaml(default)}: not an agent loop of the run; {hint}")]


def loop_setting_findings(view: RunView) -> list[Finding]:
    """Check the settings of each task's agent loop, and that one that is configured may make responses."""
    findings: list[Finding] = []
    for name, loop in known_agent_loops().items():
        key = f"{ROLLOUT}.custom.{loop.section}"
        settings = resolved(view.config, key) if loop.section else None
        if settings is None:
            continue
        given = {each: value for each, value in view.changed.items() if each.startswith(f"{key}.")}
        if given and not view.may_use(name):
            shown = ", ".join(f"{each}={as_plain_yaml(value)}" for each, value in given.items())
            reason = f"has no effect, because no response comes from the agent loop {name}"
            findings.append(
                Finding.warning(next(iter(given)), f"{shown}: {reason}; set {loop.override}, or remove {key}")
            )
        elif loop.options:
            findings += findings_of(partial(imported(loop.options), settings), key)
    return findings


def split_findings(key: str, view: RunView, loops: set[str] | None) -> list[Finding]:
    """Check the files under one key, which veRL loads together; `loops` are the names that rows may have as agent_name."""
    files = view.files(key)
    findings = [Finding.error(key, f"{key}={error}") for error in view.unreadable(key)]
    with_agents = any("agent_name" in file.schema.names for file in files.values())
    for file in files.values():
        try:
            findings += _file_findings(key, file, view.config, loops, with_agents)
        except UnreadableFileError as error:
            findings.append(Finding.error(key, f"{key}={error}"))
    compared = concatenation_findings({str(path): file for path, file in files.items()})
    problems = [found for found in compared if found.level is Level.ERROR]
    return findings + [Finding.error(key, f"{key}={found.where}: {found.message}") for found in problems]


def _file_findings(
    key: str, file: DataFile, config: DictConfig, loops: set[str] | None, with_agents: bool
) -> list[Finding]:
    """Check columns and rows of a file; the columns that veRL and the rewards need are read to the last row.

    Args:
        key: under which the file is named.
        file: as veRL opens it.
        config: of the run.
        loops: names that rows may have as agent_name; None for any.
        with_agents: some file under the key has the column agent_name, so that veRL fills it with null in the others.
    """
    prompt_key, place = str(selected(config, "data.prompt_key")), f"{key}={file.path}"
    if not file.rows:
        return [Finding.error(key, f"{place}: has no rows; build the file again")]
    found = list(column_findings("", file.schema, prompt_key))
    findings = [Finding(each.level, key, f"{place}: {each.message}") for each in found]
    if any(each.level is Level.ERROR for each in found):
        return findings
    if loops is not None and with_agents and "agent_name" not in file.schema.names:
        message = f"{place}: lacks the column agent_name, which another file has; so veRL fills in null; add the column"
        findings.append(Finding.error(key, message))
    # Where a reward model alone scores the responses, veRL reads no ground truth.
    needs_truth = selected(config, f"{REWARD}.path") or not selected(config, f"{REWARD_MODEL}.enable")
    for problem, rows, first in row_problems(file, prompt_key, loops):
        empty = problem.startswith("reward_model.ground_truth")
        if problem.startswith("reward_model") and not needs_truth:
            continue
        fix = f"the run has {', '.join(sorted(loops))}" if loops and problem.startswith("agent") else "correct the file"
        more = f" and {rows - 1} more" if rows > 1 else ""
        # A reward function of the run's own may do without.
        may_lack = empty and selected(config, f"{REWARD}.path") not in (None, OWN_REWARDS)
        level = Level.WARNING if may_lack else Level.ERROR
        findings.append(Finding(level, key, f"{place} row {first}{more}: {problem}; {fix}"))
    findings += _source_findings(key, file, config)
    wrong = any(each.level is Level.ERROR for each in findings)
    return findings if wrong else findings + _gold_findings(key, file, config)


def _gold_findings(key: str, file: DataFile, config: DictConfig) -> list[Finding]:
    """Check some rows by their reward, and the rows of the file together, as `data check` does.

    The reward understands a ground truth, which is the prompt's own, and gives full marks to who states it.
    """
    if selected(config, f"{REWARD}.path") != OWN_REWARDS or default_reward_findings(config):
        return []
    prompt_key, default = str(selected(config, "data.prompt_key")), default_reward(config)
    place = f"{key}={file.path}"
    read = file.sample([prompt_key, "data_source", "reward_model", "extra_info"], _MOST)
    rows = [({**row, "prompt": row.get(prompt_key)}, f"{place} row {number}") for number, row in read.items()]
    scored = [rows[number] for number in spread(len(rows), _SCORED_ROWS)]
    found: dict[str, list[Finding]] = {}
    for row, where in scored:
        for name, finding in reward_findings(row, where, default):
            if name != "data source" and finding.level is not Level.NOT_CHECKED:
                found.setdefault(name, []).append(finding)
    findings = []
    for name, (first, *others) in found.items():
        count = 1 + len(others)
        wrong = name == "reward of gold" or first.level is Level.ERROR
        many = [*literal_findings(key, count, len(scored))] if name == LITERAL_GOLDS else wrong and count == len(scored)
        level = Level.ERROR if many else Level.WARNING
        message = f"{first.where}: {first.message} ({count} of {len(scored)} rows that were scored)"
        findings.append(Finding(level, key, f"{message}; `verl-trgrpo data check` names all"))
    whole = WholeFile(default)
    for row, where in rows:
        whole.add(row, where)
    # Published test files repeat each problem, to sample several responses of it.
    together = [finding for name, finding in whole.findings(place) if key == DATA[0] or name != "duplicates"]
    return findings + [Finding(finding.level, key, f"{finding.where}: {finding.message}") for finding in together]


def _source_findings(key: str, file: DataFile, config: DictConfig) -> list[Finding]:
    """Check that the run scores each data source of a file, and say how many rows have none, if they are scored."""
    counted: Counter[Any] = Counter()
    for part in file.tables(["data_source"]):
        counted.update({each["values"]: each["counts"] for each in part["data_source"].value_counts().to_pylist()})
    sources = {*counted}
    without = {source: reason for source in sorted(sources - {None}) if (reason := _no_reward(config, source))}
    shown = [*without.values()][:_MAX_SOURCES]
    if others := [*without][_MAX_SOURCES:]:
        shown.append(f"no reward for {len(others)} more data sources, such as {others[0]!r}")
    findings = [Finding.error(key, f"{key}={file.path}: {reason}") for reason in shown]
    own = selected(config, f"{REWARD}.path") == OWN_REWARDS
    if own and "" in sources and (guess := guessed_reward("", default_reward(config))):
        rows = f"{counted['']} of {file.rows} rows"
        findings.append(Finding.warning(key, f"{key}={file.path}: {guess} ({rows})"))
    return findings


def default_reward(config: DictConfig) -> Any:
    """Return the data source whose reward scores those that have none, as the run's reward function gets it, or None."""
    return selected(config, DEFAULT_REWARD_KEY) if selected(config, f"{REWARD}.path") == OWN_REWARDS else None


def default_reward_findings(config: DictConfig) -> list[Finding]:
    default = default_reward(config)
    problem = default_reward_problem(default)
    return [Finding.error(DEFAULT_REWARD_KEY, f"{DEFAULT_REWARD_KEY}={default}: {problem}")] if problem else []


def _no_reward(config: DictConfig, source: str) -> str:
    """Return why the run's reward function does not score a data source, and what to do; "" if it does."""
    function = selected(config, f"{REWARD}.path")
    if function == OWN_REWARDS:
        default = default_reward(config)
        return "" if default or has_reward(source) else f"{unknown_source(source)}, or register one (docs/data.md)"
    if function is None and not selected(config, f"{REWARD_MODEL}.enable") and not _verl_scores(source):
        fix = f"set {REWARD}.path={OWN_REWARDS} {REWARD}.name=compute_score, or your own"
        return f"no reward for data source {source!r}: veRL has none; {fix}"
    return ""


def _verl_scores(source: str) -> bool:
    """Ask veRL itself, whose data sources are a chain of ifs."""
    from verl.utils.reward_score import default_compute_score

    try:
        default_compute_score(source, "", "")
    except NotImplementedError:
        return False
    except Exception:  # it has a rule, which needs a real answer or a package that is missing
        return True
    return True


def length_findings(view: RunView) -> list[Finding]:
    """Compare prompts with their limit, counted as veRL does, where model and data are on this machine.

    Of a file with more than 4,000 prompts, as many that are evenly spread are tokenized. Prompts with images or sounds are not,
    and neither are those of agent loops that are not known here.
    """
    if view.data_set:
        return []  # the check of files says so
    prompts = view.prompts
    if isinstance(prompts, str):
        return _not_compared(view, prompts)
    return [finding for key in DATA for finding in _split_findings(key, view.files(key).values(), prompts, view.config)]


def _not_compared(view: RunView, reason: str) -> list[Finding]:
    config = view.config
    key = "data.filter_overlong_prompts"
    findings = [view.finding(_LIMIT, f"prompts not compared; {reason}", Level.NOT_CHECKED)]
    if not config.data.filter_overlong_prompts and config.data.truncation != "left":
        reason = (
            f"veRL cuts prompts over {config.data.max_prompt_length} tokens from the left, whatever data.truncation="
        )
        findings.append(view.finding(key, f"{reason}{config.data.truncation} says; set {key}=true", Level.WARNING))
    return findings


def _split_findings(key: str, files: Iterable[DataFile], prompts: RolloutPrompts, config: DictConfig) -> list[Finding]:
    """Check the prompts of all files under one key together, as veRL reads them."""
    total, lengths, findings = 0, [], []
    for file in files:
        place = f"{key}={file.path}"
        try:
            rows, unknown = _sample(file, config)
        except UnreadableFileError as error:
            return [Finding.error(key, f"{key}={error}")]
        if unknown:
            findings.append(Finding.not_checked(_LIMIT, f"{_LIMIT}: prompts of {place} not compared; {unknown}"))
        others = [number for number, row in rows.items() if not _is_rendered(row.get(config.data.prompt_key))]
        if others:
            count = count_of(len(others), "prompt")
            message = (
                f"{place} row {others[0]}: {count} not a list of chat messages; build the file again (docs/data.md)"
            )
            findings.append(Finding.error(key, message))
        total += file.rows - len(others)
        numbers = sorted(rows.keys() - set(others))
        try:
            found = prompts.lengths([rows[number] for number in numbers], bool(config.data.filter_overlong_prompts))
        except (ValueError, RuntimeError) as error:
            return [*findings, Finding.error(key, f"{place}: {error}")]
        refused = [(number, each) for number, each in zip(numbers, found, strict=True) if isinstance(each, str)]
        if refused:
            number, reason = refused[0]
            return [*findings, Finding.error(key, f"{place} row {number}: {reason}; correct the row")]
        lengths += [each for each in found if isinstance(each, int)]
    return findings + (_length_findings(key, total, lengths, config) if lengths else [])


def _is_rendered(prompt: Any) -> bool:
    """Return whether a chat template gets a prompt: messages whose content is a string, or a list of parts."""
    parts = isinstance(prompt, list) and all(isinstance(message.get("content"), list) for message in prompt)
    return is_chat(prompt) or bool(prompt and parts)


def _sample(file: DataFile, config: DictConfig) -> tuple[dict[int, dict[str, Any]], str]:
    """Return rows of a file by number, at most `_MOST`, evenly spread, and why others or all of them are left out."""
    data, agent = config.data, config.actor_rollout_ref.rollout.agent.default_agent_loop
    if found := _media_columns(file, config):
        return {}, f"they have {', '.join(found)}"
    columns = [data.prompt_key, "agent_name", *(["extra_info"] if data.get("tool_config_path") else [])]
    rows = file.sample(columns, _MOST)
    if data.filter_overlong_prompts:  # which counts the same tokens for all agents
        return rows, ""
    others = {str(name) for row in rows.values() if (name := row.get("agent_name", agent)) not in known_agents()}
    known = {number: row for number, row in rows.items() if str(row.get("agent_name", agent)) not in others}
    return known, f"agent loops of the run's own render them ({', '.join(sorted(others))})" if others else ""


def _media_columns(file: DataFile, config: DictConfig) -> list[str]:
    """Return the columns of a file with images, videos or sounds, of which a prompt has more tokens than its messages say."""
    media = [str(config.data.get(f"{kind}_key") or f"{kind}s") for kind in ("image", "video", "audio")]
    return [name for name in media if name in file.schema.names]


def first_prompt(view: RunView) -> dict[str, Any] | None:
    """Return the first training prompt as the model will see it, for the record of a run; None where that is not known."""
    file, prompts = next(iter(view.files(TRAINING).values()), None), view.prompts
    if file is None or isinstance(prompts, str) or _media_columns(file, view.config):
        return None
    try:
        part = next(file.tables([view.config.data.prompt_key, "agent_name", "extra_info"]))
        [(token_ids, agent)] = prompts.of(part.slice(0, 1).to_pylist())
        text = prompts.tokenizer.decode(token_ids)
    except (ValueError, RuntimeError):
        return None
    return {"file": str(file.path), "row": 0, "agent": agent, "tokens": len(token_ids), "text": text}


def _length_findings(key: str, total: int, lengths: list[int], config: DictConfig) -> list[Finding]:
    data = config.data
    limit, filtered, batch = data.max_prompt_length, data.filter_overlong_prompts, data.train_batch_size
    longer, all_seen = sum(length > limit for length in lengths), len(lengths) == total
    if not longer:
        message = f"{_LIMIT}={limit}: {len(lengths)} of the {total} prompts of {key} were compared; none is longer"
        return [] if all_seen else [Finding.not_checked(_LIMIT, message)]
    part = f"{longer} of {total} prompts" if all_seen else f"{longer} of {len(lengths)} tokenized prompts"
    message = f"{_LIMIT}={limit}: {part} of {key} are longer, up to {max(lengths)} tokens"
    if longer == len(lengths):
        return [Finding.error(_LIMIT, f"{message}, so none fits; raise {_LIMIT}")]
    if filtered and all_seen and key == "data.train_files" and total - longer < batch:
        few = f"veRL's filter leaves {total - longer}, less than data.train_batch_size={batch}"
        return [Finding.error(_LIMIT, f"{message}: {few}; raise {_LIMIT}, or lower data.train_batch_size")]
    if not filtered and data.truncation != "left":
        fix = (
            f"whatever data.truncation={data.truncation} says; set data.filter_overlong_prompts=true, or raise {_LIMIT}"
        )
        return [Finding.error(_LIMIT, f"{message}, and veRL cuts them from the left, {fix}")]
    return [Finding.warning(_LIMIT, f"{message}; veRL {'leaves them out' if filtered else 'cuts them from the left'}")]

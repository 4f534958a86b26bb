"""Check the data of a run as veRL reads it: columns, rows, agent loops, rewards, and lengths of prompts and searches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from verl_trgrpo.checks.view import DATA, DATA_SET, OWN_REWARDS, TRAINING, RunView
from verl_trgrpo.common.findings import Finding, InvalidInputError, Level, findings_of
from verl_trgrpo.common.text import as_plain_yaml, count_of, did_you_mean
from verl_trgrpo.data.prompts import TOOLS, RolloutPrompts, agent_loops, tool_schemas
from verl_trgrpo.data.questions.ask import Questions, summaries
from verl_trgrpo.data.questions.context import TEST_ROLE, TRAIN_ROLE, Context, DataQuestion, Remark
from verl_trgrpo.data.questions.single_rows import has_source
from verl_trgrpo.data.rows import RawRow, UnreadableFileError, is_chat
from verl_trgrpo.data.verl_files import DataFile
from verl_trgrpo.runs.compose import resolved
from verl_trgrpo.runs.keys import AGENT, MODEL_PATH, REWARD, REWARD_MODEL, ROLLOUT, selected
from verl_trgrpo.tasks.ground_truths import TaskKnowledge
from verl_trgrpo.tasks.registry import DEFAULT_REWARD_KEY, default_reward_problem, known_agent_loops, known_agents
from verl_trgrpo.tasks.task import imported

_MANAGER = f"{AGENT}.agent_loop_manager_class"
_LIMIT = "data.max_prompt_length"
# Prompts of a file that are tokenized, and ground truths that are scored, at most; a thousand take about a second.
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
    training, validation = ({path.resolve() for path in view.local(key)} for key in DATA)
    if shared := sorted(path for path in training & validation if path.is_file()):
        message = f"data.val_files={shared[0]}: is one of data.train_files; validate with another file"
        findings.append(Finding.warning("data.val_files", message))
    return findings + row_findings(view, loops)


def row_findings(view: RunView, loops: set[str] | None) -> list[Finding]:
    """Ask the files and all of their rows; `loops` are the names that rows may have as agent_name."""
    config = view.config
    scored_here = selected(config, f"{REWARD}.path") == OWN_REWARDS
    by_model = bool(selected(config, f"{REWARD_MODEL}.enable")) and not selected(config, f"{REWARD}.path")
    # Where a reward model alone scores the responses, veRL reads no ground truth; a function of the run's own may do without.
    own = None if by_model else Level.WARNING if selected(config, f"{REWARD}.path") and not scored_here else Level.ERROR
    context = Context(_knowledge(config), loops, missing_truth=own, compares=_validates(config), most_scored=_MOST)
    questions, findings = Questions(context), list[Finding]()
    asked: set[Path] = set()
    for key, role in zip(DATA, (TRAIN_ROLE, TEST_ROLE), strict=True):
        files = {str(path): file for path, file in view.opened(key).items() if path.resolve() not in asked}
        asked |= {path.resolve() for path in view.opened(key)}
        found = [*questions.files(role, files, str(selected(config, "data.prompt_key")))]
        known = summaries(each for each in found if each.level is not Level.NOT_CHECKED)
        findings += [Finding(level, key, f"{key}={text}") for level, text in known]
        unchecked = {
            each.message for each in found if each.level is Level.NOT_CHECKED and each.question is DataQuestion.GOLD
        }
        if not any(each.level is Level.ERROR for each in findings):
            findings += [Finding.not_checked(key, f"{key}: {message}") for message in sorted(unchecked)]
    if own and not scored_here and asked:
        message = "ground truths were not scored, because only the rewards of this package can be asked"
        findings.append(view.finding(f"{REWARD}.path", message, Level.NOT_CHECKED))
    return findings


def _validates(config: DictConfig) -> bool:
    trainer = config.trainer
    return bool(trainer.test_freq > 0 or trainer.val_before_train or trainer.val_only)


def _knowledge(config: DictConfig) -> TaskKnowledge:
    """Return what is known of the rewards of the run."""
    function = selected(config, f"{REWARD}.path")
    if function == OWN_REWARDS:
        return TaskKnowledge(None if default_reward_findings(config) else default_reward(config))
    if function is None and not selected(config, f"{REWARD_MODEL}.enable"):
        return _VerlKnowledge(has_rewards=False)
    return TaskKnowledge(has_rewards=False)


class _VerlKnowledge(TaskKnowledge):
    """veRL's own rewards score the rows."""

    def source_remarks(self, row: RawRow) -> Iterator[Remark]:
        """Ask veRL whether it has a reward."""
        source = row.get("data_source")
        if has_source(row) and not _verl_scores(source):
            fix = f"set {REWARD}.path={OWN_REWARDS} {REWARD}.name=compute_score, or your own"
            yield DataQuestion.SOURCE, Level.ERROR, f"no reward for data source {source!r}: veRL has none; {fix}"


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


def default_reward(config: DictConfig) -> Any:
    """Return the data source whose reward scores those that have none, as the run's reward function gets it, or None."""
    return selected(config, DEFAULT_REWARD_KEY) if selected(config, f"{REWARD}.path") == OWN_REWARDS else None


def default_reward_findings(config: DictConfig) -> list[Finding]:
    default = default_reward(config)
    problem = default_reward_problem(default)
    return [Finding.error(DEFAULT_REWARD_KEY, f"{DEFAULT_REWARD_KEY}={default}: {problem}")] if problem else []


@cache
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


def turn_findings(view: RunView) -> list[Finding]:
    """Compare what ends a response with what the chat template writes behind an answer, where the model is on this machine."""
    prompts = view.prompts
    if isinstance(prompts, str):
        return []  # the checks of lengths and of the model say so
    try:
        ends, behind = prompts.turn()
    except (ValueError, TimeoutError) as error:
        return [Finding.not_checked(MODEL_PATH, f"{MODEL_PATH}: whether answers end was not checked ({error})")]
    if not behind or ends.keys() & behind:
        return []
    token, text = next(iter(behind.items()))
    known = " and ".join(f"{name!r} ({number})" for number, name in ends.items()) or "nothing"
    reason = (
        f"its chat template ends an answer with {text!r} ({token}), and {known} ends a response, so that every response may "
        f'run to data.max_response_length; set "eos_token_id": {sorted([*ends, token])} in the model\'s generation_config.json'
    )
    return [view.finding(MODEL_PATH, reason, Level.WARNING)]


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
            findings += [Finding.error(key, f"{place} {problem}") for problem in _unseen(file, prompts, config)]
            rows, unknown = _sample(file, config)
        except UnreadableFileError as error:
            return [Finding.error(key, f"{key}={error}")]
        if unknown:
            findings.append(Finding.not_checked(_LIMIT, f"{_LIMIT}: prompts of {place} not compared; {unknown}"))
        others = [number for number, row in rows.items() if not is_chat(row.get(config.data.prompt_key))]
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


def _unseen(file: DataFile, prompts: RolloutPrompts, config: DictConfig) -> Iterator[str]:
    """Yield a message for the first row with images, videos or sounds, if the model has no processor for them."""
    media = _media_columns(file, config)
    if not media or prompts.has_processor:
        return
    for number, row in enumerate(file.read(media)):
        if found := next((name for name in media if row.get(name)), None):
            reason = f"has {found}, for which veRL finds no processor of the model, and ends when it reads such a row"
            remedy = (
                f"choose a model that has one, install what it needs (torchvision), or remove {found} from the file"
            )
            yield f"row {number}: {reason}; {remedy}"
            return


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
    part = f"{longer} of {count_of(total, 'prompt')}" if all_seen else f"{longer} of {len(lengths)} tokenized prompts"
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

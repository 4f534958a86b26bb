"""Check a run whose responses search: the length of a response, and the servers."""

from __future__ import annotations

from typing import Any

from verl_trgrpo.common.findings import Finding, Level
from verl_trgrpo.tasks.search_qa.client import failures_of_servers
from verl_trgrpo.tasks.search_qa.search_options import SECTION, SearchOptions, read_search_options

_KEY = f"actor_rollout_ref.{SECTION}"


def run_checks(view: Any) -> list[Finding]:
    """Check that a response has room for the searches, and ask the servers once where this machine is about to train.

    Args:
        view: of the run, a ``checks.view.RunView``.
    """
    try:
        options = read_search_options(view[_KEY])
        return [*_length_findings(view, options), *_server_findings(view, options)]
    except ValueError as error:
        return [Finding.error(_KEY, str(error))]


def _length_findings(view: Any, options: SearchOptions) -> list[Finding]:
    response, searches = view["data.max_response_length"], options.max_searches
    budget = (searches + 1) * options.max_turn_tokens + searches * options.max_observation_tokens
    if budget <= response:
        return []
    message = (
        f"{_KEY}: {searches + 1} turns of {options.max_turn_tokens} tokens and {searches} observations of "
        f"{options.max_observation_tokens} are {budget} tokens, more than data.max_response_length={response}, so responses may "
        f"end without an answer; set data.max_response_length={budget}, or lower {_KEY}.max_searches"
    )
    return [Finding.warning(_KEY, message)]


def _server_findings(view: Any, options: SearchOptions) -> list[Finding]:
    key = f"{_KEY}.url"
    if not view.trains:
        return [view.finding(key, "is asked when training starts", Level.NOT_CHECKED)]
    if not view.starts:
        return []
    failures = failures_of_servers(options)
    level = Level.ERROR if len(failures) == len(options.urls) else Level.WARNING
    fix = "start the server (`verl-trgrpo search serve --index DIR`), or correct the address"
    return [Finding(level, key, f"{key}={url}: {failure}; {fix}") for url, failure in failures.items()]

"""What the agent loop of searches asks of a run: its options, the length of a response, and servers that answer."""

import asyncio
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.checks.validation import summary
from tests.conftest import composed
from tests.data.checked_files import row, write
from tests.tasks.search_qa.conftest import running_server
from verl_trgrpo.checks.check import own_findings
from verl_trgrpo.checks.data_files import loop_setting_findings
from verl_trgrpo.checks.view import RunView
from verl_trgrpo.common.findings import Level
from verl_trgrpo.runs.compose import DEFAULT_CONFIG
from verl_trgrpo.tasks.registry import known_agent_loops
from verl_trgrpo.tasks.search_qa import SEARCH_AGENT, loop

KEY = "actor_rollout_ref.rollout.custom.search"
SEARCHES, URL = "agent=search_tags", f"{KEY}.url"
# Nothing listens there.
UNREACHABLE = "http://127.0.0.1:9"
ROOM = "data.max_response_length=4500"


def found(*overrides, trains=True):
    view = RunView(composed(overrides), trains=trains)
    return [*loop_setting_findings(view), *own_findings(view)]


@contextmanager
def in_another_thread():
    """A search server that answers while this thread waits for it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = running_server()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(60)
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_the_declared_loop_is_that_of_the_file_that_verl_reads():
    config = composed([SEARCHES]).config
    [declared] = yaml.safe_load(Path(config.actor_rollout_ref.rollout.agent.agent_loop_config_path).read_text())
    module, _, name = known_agent_loops()[SEARCH_AGENT].loop.partition(":")
    assert (declared["name"], declared["_target_"]) == (SEARCH_AGENT, f"{module}.{name}")
    assert getattr(loop, name).run_checks


def test_searches_that_do_not_fit_are_a_warning_and_unknown_options_an_error():
    more = [f"{KEY}.{name}" for name in ("max_searches=6", "max_turn_tokens=500", "max_observation_tokens=500")]
    [length, _] = found(SEARCHES, ROOM, *more, trains=False)
    assert summary([length]) == [(KEY, Level.WARNING)] and "data.max_response_length=6500" in length.message
    [option, *_] = found(SEARCHES, ROOM, f"+{KEY}.deadlin=3", trains=False)
    assert summary([option]) == [(KEY, Level.ERROR)] and "deadlin" in option.message


def test_search_servers_are_asked_once_before_a_training():
    searching = [SEARCHES, ROOM]
    [later] = found(*searching, f"{URL}={UNREACHABLE}", trains=False)
    assert summary([later]) == [(URL, Level.NOT_CHECKED)] and UNREACHABLE in later.message
    [now] = found(*searching, f"{URL}={UNREACHABLE}")
    assert summary([now]) == [(URL, Level.ERROR)] and UNREACHABLE in now.message
    with in_another_thread() as server:
        assert found(*searching, f"{URL}={server.url}") == [] and len(server.requests) == 1
        [one] = found(*searching, f"{URL}=[{server.url},{UNREACHABLE}]")
        assert summary([one]) == [(URL, Level.WARNING)] and UNREACHABLE in one.message, "the others stand in for it"


@pytest.mark.parametrize("default", ["single_turn_agent", SEARCH_AGENT])
def test_settings_of_searches_that_no_response_makes_are_a_warning(tmp_path, default):
    """Where the rows are not known, or have no name and the default searches, they may be used."""
    plain = write(tmp_path / "plain.parquet", [row(0)])
    given = [f"++{KEY}.topk=5", f"data.train_files={plain}", f"data.val_files={plain}", f"{AGENT}={default}"]
    expected = [] if default == SEARCH_AGENT else [(f"{KEY}.topk", Level.WARNING)]
    view = RunView(composed(given, DEFAULT_CONFIG))
    assert summary(loop_setting_findings(view)) == expected
    assert loop_setting_findings(RunView(composed(given[:1], DEFAULT_CONFIG))) == []


AGENT = "actor_rollout_ref.rollout.agent.default_agent_loop"

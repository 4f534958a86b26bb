"""Wait for states. The limit marks a hang; no verdict hangs on how long something took."""

import time
from collections.abc import Callable
from typing import Any

HANGS = 3600.0
"""Seconds after which what is waited for counts as hanging, for every wait of the tests."""


def wait_for(condition: Callable[[], Any], broken: Callable[[], Any] = lambda: None, pause: float = 0.02) -> Any:
    """Wait until `condition` returns something true, and return that; ask every `pause` seconds.

    Raises:
        AssertionError: with what `broken` returns, as soon as that is true; or after `HANGS` seconds.
    """
    end = time.monotonic() + HANGS
    while True:
        reason = broken()  # first, for what is broken by an end may have met the condition with it
        if found := condition():
            return found
        if reason or time.monotonic() > end:
            raise AssertionError(reason or "waited in vain")
        time.sleep(pause)

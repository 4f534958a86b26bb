"""Processor time of a call, for tests of how it grows with the length of a response."""

import time


def seconds(function, *arguments):
    """Return the shortest of three runs, in seconds of this process's processor time."""
    times = []
    for _ in range(3):
        start = time.process_time()
        function(*arguments)
        times.append(time.process_time() - start)
    return min(times)

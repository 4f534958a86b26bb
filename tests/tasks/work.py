"""Work of a call, counted: the same on every machine and at every load."""

import sys


def work(function, *arguments, **options):
    """Return how many lines of Python a call runs."""
    lines = 0

    def trace(frame, event, argument):
        nonlocal lines
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*arguments, **options)
    finally:
        sys.settrace(before)
    return lines

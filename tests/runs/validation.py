"""What `verl-trgrpo validate` finds."""

from verl_trgrpo.runs.compose import compose
from verl_trgrpo.runs.validate import Report, check


def validate(source, overrides=(), need_files=True) -> Report:
    return check(compose(source, overrides), need_files)

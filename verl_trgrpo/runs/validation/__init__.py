"""Everything that is wrong with a run's configuration, at once and before a GPU is rented.

The door is :func:`validate`; ``verl-trgrpo validate`` prints what it returns.
"""

from verl_trgrpo.common.problems import Finding, Level
from verl_trgrpo.runs.validation.validate import Report, validate

__all__ = ["Finding", "Level", "Report", "validate"]

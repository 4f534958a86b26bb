"""Everything that is wrong with a run's configuration, at once and before a GPU is rented.

The door is :func:`validate`; ``verl-trgrpo validate`` prints what it returns.
"""

from verl_trgrpo.validation.findings import Finding, Level
from verl_trgrpo.validation.validate import Report, validate

__all__ = ["Finding", "Level", "Report", "validate"]

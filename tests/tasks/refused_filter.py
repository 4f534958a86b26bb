"""`hostile_functions` in a judge whose kernel refuses the filter: prctl is asked for what no kernel has."""

from tests.tasks.hostile_functions import call  # noqa: F401  # for the judge
from verl_trgrpo.tasks import sandbox

sandbox._PR_SET_SECCOMP = -1

"""`hostile_functions` in a judge whose kernel refuses the filter: prctl is asked for what no kernel has."""

from tests.common.hostile_functions import call  # noqa: F401  # for the judge
from verl_trgrpo.common import seccomp

seccomp._PR_SET_SECCOMP = -1

"""Comparisons of algorithms over seeds: the runs, and the statistics of what came out."""

from verl_trgrpo.runs.compare.commands import make_inputs
from verl_trgrpo.runs.compare.runner import run_study
from verl_trgrpo.runs.compare.study import Study, read_study

__all__ = ["Study", "make_inputs", "read_study", "run_study"]

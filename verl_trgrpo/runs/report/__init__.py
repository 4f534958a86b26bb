"""Reading a run's metrics and showing them: summary, curves, and (in `build`) the page that compares runs."""

from verl_trgrpo.runs.report.curves import plot_curves
from verl_trgrpo.runs.report.metrics import MetricsLog, Step, summarize

__all__ = ["MetricsLog", "Step", "plot_curves", "summarize"]

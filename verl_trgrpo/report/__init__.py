"""Reading a run's metrics and showing them: summary and curves."""

from verl_trgrpo.report.curves import plot_curves
from verl_trgrpo.report.metrics import MetricsLog, Step, summarize

__all__ = ["MetricsLog", "Step", "plot_curves", "summarize"]

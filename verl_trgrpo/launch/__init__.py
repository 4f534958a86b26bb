"""Start, watch, stop and resume trainings."""

"""Plan the memory of a run by phase, watch it while the run goes on, and explain a failure for lack of it."""

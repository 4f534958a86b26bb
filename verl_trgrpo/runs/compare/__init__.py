"""Comparisons of algorithms over seeds: the runs, and the statistics of what came out."""

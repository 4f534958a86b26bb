"""Comparisons of algorithms over seeds: training runs, statistics and tables."""

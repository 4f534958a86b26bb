"""Data files of veRL: their rows (rows), how builders write them (write), and where they read from (sources)."""

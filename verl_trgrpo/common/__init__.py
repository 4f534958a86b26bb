"""What every layer may use: files that appear whole, one lock, one kind of problem, one text table, progress."""

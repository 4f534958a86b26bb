"""Modules that every layer may use: atomic files, findings, command-line options, progress bars, strings for messages."""

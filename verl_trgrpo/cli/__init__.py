"""The command line: one file a sub-command, each with ``add_parser`` and ``run``."""

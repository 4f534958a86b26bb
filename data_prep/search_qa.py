"""Run ``verl-trgrpo data build search-qa``."""

import sys

from verl_trgrpo.cli.main import main

sys.exit(main(["data", "build", "search-qa", *sys.argv[1:]]))

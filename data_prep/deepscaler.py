"""Run ``verl-trgrpo data build deepscaler``."""

import sys

from verl_trgrpo.cli.main import main

sys.exit(main(["data", "build", "deepscaler", *sys.argv[1:]]))

"""Run ``verl-trgrpo data build reasoning-gym``."""

import sys

from verl_trgrpo.cli.main import main

sys.exit(main(["data", "build", "reasoning-gym", *sys.argv[1:]]))

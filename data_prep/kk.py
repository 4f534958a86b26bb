"""Run ``verl-trgrpo data build kk``."""

import sys

from verl_trgrpo.cli.main import main

sys.exit(main(["data", "build", "kk", *sys.argv[1:]]))

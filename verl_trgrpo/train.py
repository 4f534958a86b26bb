"""``python -m verl_trgrpo.train [hydra overrides]``: the same as ``verl-trgrpo train``."""

import sys

from verl_trgrpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))

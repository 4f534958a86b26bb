"""``python -m verl_trgrpo COMMAND``: the same as ``verl-trgrpo COMMAND``."""

import sys

from verl_trgrpo.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

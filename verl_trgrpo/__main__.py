"""Run the command line: ``verl-trgrpo COMMAND`` or ``python -m verl_trgrpo COMMAND``."""

import sys

from verl_trgrpo.common.extras import missing_extra
from verl_trgrpo.common.text import for_terminal


def main() -> int:
    """Run the command line and return its exit code; a module of an extra that is not installed gives one line and 1."""
    try:
        from verl_trgrpo.cli.main import main as command_line

        return command_line()
    except ModuleNotFoundError as error:
        if message := missing_extra(error):
            sys.stderr.write(for_terminal(f"error: {message}\n"))
            return 1
        raise


if __name__ == "__main__":
    sys.exit(main())

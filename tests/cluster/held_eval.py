"""``verl-trgrpo`` whose evaluations make :data:`MADE` responses and wait for ever with the next ones."""

import asyncio
import itertools
import sys

from verl_trgrpo.cli.main import main
from verl_trgrpo.evaluation.generation import Generator

MADE = 40
_respond, _finished = Generator.respond, itertools.count(1)


async def respond(self, job):
    response = await _respond(self, job)
    if next(_finished) > MADE:
        await asyncio.Event().wait()
    return response


if __name__ == "__main__":  # vLLM's processes import this file, too
    Generator.respond = respond
    sys.exit(main(sys.argv[1:]))

"""Two tiny language models of about a million parameters, the worlds they live in, and how they were trained.

One solves Knights-and-Knaves puzzles (`puzzles`), the other searches in an invented world (`search`, `search_world`).
``python -m verl_trgrpo.tiny.warm_start`` builds the checkpoints that ship with the package.
"""

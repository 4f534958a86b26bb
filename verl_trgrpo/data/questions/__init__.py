"""All that is asked of a row, a file and a pair of files: each question once, with one severity.

Builders, ``data check``, ``validate``, ``train`` and ``eval`` call :class:`~verl_trgrpo.data.questions.ask.Questions`.
They differ in the rows that they give and in what they do with what is found.
"""

"""Ask the files of a run, or rows that are to be written, and gather what is found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from verl_trgrpo.common.findings import Level
from verl_trgrpo.common.text import count_of
from verl_trgrpo.data.questions.columns import column_remarks, fits_together, layout_problems
from verl_trgrpo.data.questions.context import REFUSED, Context, DataQuestion, Found
from verl_trgrpo.data.questions.repeats import SeenPrompts
from verl_trgrpo.data.questions.single_rows import ask_row
from verl_trgrpo.data.questions.whole_files import WholeFile
from verl_trgrpo.data.rows import COLUMNS, RawRow, UnreadableFileError
from verl_trgrpo.data.verl_files import DataFile, open_as_verl, spread

Watch = Callable[[str, DataFile, Iterator[RawRow]], Iterator[RawRow]]
"""Takes name, file and rows, and yields the rows, to look at each of them, too."""

_MOST_SHOWN = 3


class Questions:
    """Ask the files of one run, those to train on first, because test rows are compared with them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._seen = SeenPrompts(context)

    def files(
        self,
        role: str,
        files: Mapping[str, DataFile | UnreadableFileError],
        prompt_key: str = "prompt",
        watch: Watch = lambda name, file, rows: rows,
    ) -> Iterator[Found]:
        """Ask the files of a role, given by name as `open_data_file` returns them: files, columns, and every row."""
        sound = {name: file for name, file in files.items() if isinstance(file, DataFile)}
        for name, file in files.items():
            if isinstance(file, UnreadableFileError):
                yield Found(DataQuestion.FILE, Level.ERROR, str(file), name)
                continue
            if not file.rows:
                yield Found(DataQuestion.FILE, Level.ERROR, "it has no rows; build the file again", name)
            for remark in column_remarks(file.schema, prompt_key, file.path):
                yield Found(*remark, name)
        yield from fits_together(sound)
        for name, file in sound.items():
            if layout_problems(file.schema, prompt_key):
                for question in [*DataQuestion][2:]:
                    yield Found(question, Level.NOT_CHECKED, f"{name}: correct the columns first", name)
            else:
                rows = file.read((*COLUMNS, "agent_name"), prompt_key)
                most = self._context.most_scored
                scored = None if most is None or file.rows <= most else frozenset(spread(file.rows, most))
                yield from self.rows(role, name, watch(name, file, rows), file.path, scored)

    def rows(
        self,
        role: str,
        name: str,
        rows: Iterable[RawRow],
        path: Path | None = None,
        scored: Collection[int] | None = None,
    ) -> Iterator[Found]:
        """Ask the rows of one file, and the file as a whole.

        Args:
            role: of the file.
            name: of the file.
            rows: all of them.
            path: of a file that is there.
            scored: numbers of the rows whose ground truths are scored; None for all.
        """
        whole = WholeFile(self._context, role)
        number = 0
        try:
            for row in rows:
                literal = False
                for remark in ask_row(row, self._context, scored is None or number in scored):
                    literal = literal or remark[0] == DataQuestion.LITERAL
                    yield Found(*remark, name, number)
                for remark in self._seen.remarks(role, row, (name, number)):
                    yield Found(*remark, name, number)
                whole.add(row, number, literal, scored is None or number in scored)
                number += 1
        except UnreadableFileError as error:
            yield Found(DataQuestion.FILE, Level.ERROR, f"{error} (after {count_of(number, 'row')})", name)
        if scored is not None and whole.scored:
            reason = (
                f"the ground truths of {len(scored)} of {number} rows were scored; `verl-trgrpo data check` scores all"
            )
            yield Found(DataQuestion.GOLD, Level.NOT_CHECKED, f"{name}: {reason}", name)
        for remark in whole.remarks(path):
            yield Found(*remark, name)

    def different_prompts(self, role: str) -> int:
        """Return how many different prompts the rows of a role had."""
        return self._seen.count(role)


def open_data_file(path: Path) -> DataFile | UnreadableFileError:
    """Open a file as veRL does, or return why that is not possible."""
    try:
        return open_as_verl(path)
    except UnreadableFileError as error:
        return error


def summaries(found: Iterable[Found]) -> list[tuple[Level, str]]:
    """Return level and text of the first three different findings of each file and question, and how many others there are."""
    by_question: dict[tuple[str, DataQuestion, Level], dict[str, list[Found]]] = {}
    for each in found:
        by_message = by_question.setdefault((each.file, each.question, each.level), {})
        by_message.setdefault(each.message, []).append(each)
    texts = []
    for (file, question, level), by_message in by_question.items():
        groups = sorted(by_message.values(), key=lambda group: group[0].row is not None)  # of the whole file first
        for first, *others in groups[:_MOST_SHOWN]:
            more = f" and {len(others)} more" if others else ""
            texts.append((level, f"{first.place}{more}: {first.message}"))
        if rest := sum(map(len, groups[_MOST_SHOWN:])):
            what = f"{count_of(rest, 'more finding')} about {question.value}"
            texts.append((level, f"{file}: {what}; `data check` with --all names each"))
    return texts


def usable(found: Iterable[Found], refused: Collection[DataQuestion] = REFUSED) -> list[str]:
    """Return what is found of rows that can be used, as texts.

    Raises:
        ValueError: there are errors about one of the questions `refused`; the message has the first different ones.
    """
    known = [each for each in found if each.level is not Level.NOT_CHECKED]
    if wrong := [each for each in known if each.level is Level.ERROR and each.question in refused]:
        raise ValueError("; ".join(text for _, text in summaries(wrong)))
    return [text for _, text in summaries(known)]

"""How long prompts are: in tokens with a chat template, else in characters."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_trgrpo.data.checks.files import first_line
from verl_trgrpo.data.checks.findings import ERROR, WARNING, Findings

_BATCH = 512
_BINS = 10
_BAR = 40


@dataclass(frozen=True)
class Lengths:
    """Prompt lengths of some rows.

    unit: "tokens" (chat template applied, generation prompt included) or "characters" (of all messages).
    over: how many exceed the limit, None where none was given in this unit.
    bins: (least, greatest, count), equally wide, from the shortest prompt to the longest.
    """

    unit: str
    rows: int
    min: int
    median: int
    p95: int
    max: int
    over: int | None
    bins: tuple[tuple[int, int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)


def summarize(lengths: Sequence[int], unit: str, limit: int | None) -> Lengths | None:
    """Return the summary of `lengths`, None if there are none. Percentiles are nearest ranks."""
    if not lengths:
        return None
    ordered = sorted(lengths)
    least, width = ordered[0], (ordered[-1] - ordered[0]) // _BINS + 1
    counts = [0] * _BINS
    for length in ordered:
        counts[(length - least) // width] += 1
    used = (ordered[-1] - least) // width + 1
    bins = tuple((least + i * width, least + (i + 1) * width - 1, counts[i]) for i in range(used))
    return Lengths(
        unit,
        len(ordered),
        least,
        _rank(ordered, 50),
        _rank(ordered, 95),
        ordered[-1],
        None if limit is None else sum(length > limit for length in ordered),
        bins,
    )


def histogram(lengths: Lengths) -> str:
    """Draw the bins as lines of text."""
    most = max(count for _, _, count in lengths.bins)
    widest = len(str(lengths.bins[-1][1]))
    return "\n".join(
        f"  {low:>{widest}} to {high:>{widest}}  {'#' * round(_BAR * count / most) or ('.' if count else ''):<{_BAR}}  {count}"
        for low, high, count in lengths.bins
    )


def load_tokenizer(directory: Path) -> Any:
    """Return the tokenizer in a local directory; nothing is downloaded and no code of the directory is run.

    Raises ValueError where there is none or it has no chat template.
    """
    if not directory.is_dir():
        raise ValueError(f"the tokenizer {directory} is not a directory; give the directory of a local model")
    try:
        from transformers import AutoTokenizer  # slow import, needed here only

        tokenizer = AutoTokenizer.from_pretrained(str(directory), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # transformers raises many unrelated types
        raise ValueError(f"no tokenizer could be loaded from {directory} ({first_line(error)}); check it") from error
    if not tokenizer.chat_template:
        raise ValueError(f"the tokenizer in {directory} has no chat template; give that of an instruction-tuned model")
    return tokenizer


def template_tags(tokenizer: Any) -> tuple[str, ...]:
    """Return the special tokens of a tokenizer, such as its marks of a message's beginning and end."""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return tuple(sorted({token.content for token in added if token.special and token.content.strip()}))


class PromptLengths:
    """Measures the prompts of one file."""

    def __init__(self, tokenizer: Any, limit: int | None, findings: Findings) -> None:
        self.unit = "tokens" if tokenizer else "characters"
        self.limit = limit if tokenizer else None
        self.lengths = array("Q")
        self._tokenizer = tokenizer
        self._findings = findings
        self._waiting: list[tuple[str, str]] = []

    def add(self, row: Mapping[str, Any], where: str) -> None:
        """Measure a row whose prompt is a list of messages; tokens are counted some rows later."""
        if self._tokenizer is None:
            self.lengths.append(sum(len(message["content"]) for message in row["prompt"]))
            return
        self._findings.ran("chat template")
        try:
            text = self._tokenizer.apply_chat_template(row["prompt"], add_generation_prompt=True, tokenize=False)
        except Exception as error:  # templates raise what they like
            self._findings.add("chat template", ERROR, where, f"it refuses the prompt: {first_line(error)}")
            return
        self._waiting.append((where, text))
        if len(self._waiting) >= _BATCH:
            self.finish()

    def finish(self) -> None:
        """Count the tokens of the rows that wait for it."""
        if not self._waiting:
            return
        texts = [text for _, text in self._waiting]
        ids = self._tokenizer(texts, add_special_tokens=False, return_attention_mask=False, verbose=False)["input_ids"]
        for (where, _), tokens in zip(self._waiting, ids, strict=True):
            self.lengths.append(len(tokens))
            if self.limit is not None:
                self._findings.ran("prompt length")
                if len(tokens) > self.limit:
                    text = f"longer than {self.limit} tokens; veRL drops such a prompt, or stops"
                    self._findings.add("prompt length", WARNING, where, text)
        self._waiting.clear()


def _rank(ordered: Sequence[int], percent: int) -> int:
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

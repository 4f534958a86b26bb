"""The six sets: where each is found in a directory and on the Hugging Face hub, and which file it becomes.

Nothing below has been loaded from the hub itself, only from local copies of its layout. What is known, and from where:

| set | rows | columns | known from |
|---|---|---|---|
| deepscaler | 40,315 | problem, answer, solution | the repository's pages; six rows have no answer (its discussion 4) |
| aime2024 | 30 | problem, answer (text) | the repository's pages, programs that load it |
| amc2023 | 83 | problem, answer (float) | the repository's pages, DeepScaleR's amc.json, made from it |
| math500 | 500 | problem, answer, subject, level | the repository's pages, programs that load it |
| minerva | 272 | question, answer | the repository's pages, programs that load it |
| olympiad_bench | 674 | question, final_answer (list), subfield | programs that load it; DeepScaleR's file has 675 rows |

The commits were seen as those of the repositories. Not seen: that olympiad_bench has its configuration at that commit.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class HubData:
    """Rows on the hub: repository (or a directory with a copy of one), commit, branch or tag, split, configuration."""

    dataset: str
    revision: str
    split: str
    configuration: str | None = None


@dataclass(frozen=True)
class MathSet:
    """One set.

    name: also its `data_source`, which chooses the reward.
    file: the parquet file it becomes.
    split: "train" or "test".
    source_names: names of its file, without the type, in a directory: DeepScaleR's raw and prepared ones, and `file`'s.
    hub: where it is on the hub.
    """

    name: str
    file: str
    split: str
    source_names: tuple[str, ...]
    hub: HubData


def _test_set(name: str, raw: str, hub: HubData) -> MathSet:
    names = tuple(dict.fromkeys((raw, f"{raw}_test", name)))
    return MathSet(name, f"{name}.parquet", "test", names, hub)


TRAIN = "deepscaler"

_ALL = (
    MathSet(
        TRAIN,
        "train.parquet",
        "train",
        ("deepscaler", "deepscaler_train", "train"),
        HubData("agentica-org/DeepScaleR-Preview-Dataset", "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29", "train"),
    ),
    _test_set(
        "aime2024", "aime", HubData("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", "train")
    ),
    _test_set(
        "amc2023", "amc", HubData("AI-MO/aimo-validation-amc", "8ef249608d65c2de7763ca7525f438e540ba285e", "train")
    ),
    _test_set("math500", "math", HubData("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", "test")),
    _test_set("minerva", "minerva", HubData("math-ai/minervamath", "ee46ddc498933b1977577953250ca5c66be64f96", "test")),
    _test_set(
        "olympiad_bench",
        "olympiad_bench",
        HubData("Hothan/OlympiadBench", "3b426ee1d587c71b495146dde9f3e995ee7ac59f", "train", "OE_TO_maths_en_COMP"),
    ),
)

SETS = {math_set.name: math_set for math_set in _ALL}

_OVERRIDE = re.compile(
    r"(?P<name>[^=]+)=(?P<dataset>[^@:]+)(?:@(?P<revision>[^:]+))?(?::(?:(?P<configuration>[^/]+)/)?(?P<split>[^/]+))?"
)


def hub_data(overrides: Iterable[str]) -> dict[str, HubData]:
    """Return where each set is on the hub.

    Args:
        overrides: ``NAME=REPO[@REVISION][:[CONFIGURATION/]SPLIT]``. What is left out stays, except that another
            repository is read from its branch main.

    Raises:
        ValueError: one of another form, for an unknown set, or for a set that has one already.
    """
    found = {name: math_set.hub for name, math_set in SETS.items()}
    seen = set()
    for text in overrides:
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            raise ValueError(f"hf_dataset is {text!r}; write NAME=REPO[@REVISION][:[CONFIGURATION/]SPLIT]")
        given = {key: value for key, value in match.groupdict().items() if value}
        name = given.pop("name")
        if name not in SETS or name in seen:
            reason = "is given twice" if name in seen else f"is no set; choose from {', '.join(SETS)}"
            raise ValueError(f"hf_dataset is {text!r}, but {name} {reason}")
        seen.add(name)
        if given["dataset"] != found[name].dataset:
            given.setdefault("revision", "main")
        found[name] = replace(found[name], **given)
    return found

"""The page has the tables of the record, and the program counts as its columns say."""

import json
from pathlib import Path

from studies.pages import filled
from studies.rewards.blind_sets import mistaken, read_sets, tables

PAGE = Path(__file__).parents[2] / "docs" / "results" / "rewards.md"


def test_the_page_has_the_tables_of_the_record():
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, "blind sets", tables()) == page


def test_verdicts_are_counted_by_kind_and_label(tmp_path):
    def case(kind, right, paid, other):
        return {"kind": kind, "right": right, "paid": paid, "math_verify": other}

    rows = [
        {"set": "five cases", "commit": "abc", "on": "May", "looked_at": ""},
        case("sets", True, True, False), case("sets", True, False, False), case("sets", False, False, True),
        case("units", False, True, False), case("units", False, False, False),
    ]  # fmt: skip
    record = tmp_path / "record.jsonl"
    record.write_text("\n".join(map(json.dumps, rows)))
    assert [line.split(" | ")[1:] for line in tables(record).splitlines()[4:]] == [
        ["1 of 2", "0 of 1", "0 of 2", "1 of 1 |"],
        ["", "1 of 2", "", "0 of 2 |"],
        ["1 of 2", "1 of 3", "0 of 2", "1 of 3 |"],
    ]
    assert "looked at" not in tables(record)


def test_each_case_of_the_record_can_be_judged_again():
    for about, cases in read_sets():
        wrong = [case for case in mistaken(cases) if not case["right"] and not case["documented"]]
        assert wrong == [], about["set"]

"""`sacct --json` that is not as it should be: each record that is whole is read, each other is one reject."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.conftest import Lake
from tests.traces.readers.sacct.test_shapes import job
from traces.readers import json_documents
from traces.readers.json_documents import Documents, Element
from traces.readers.staged import FileResult

PIECES = st.sampled_from([2_003, 1 << 20])  # bytes that are read at a time


def elements(text: str, piece: int = 1 << 20) -> list[Element]:
    data = text.encode(errors="surrogatepass")
    return list(Documents((data[at : at + piece] for at in range(0, len(data), piece)), "jobs").elements())


def record(number: int, **other: Any) -> str:
    """A record as text, with objects, lists and quotes inside."""
    tres = [{"type": "cpu", "count": 1}, {"type": "mem", "count": 2}]
    name = 'a "quoted" }, {"account": name ] }{"account'
    return json.dumps({"account": "ml", "name": name, "n": number, "tres": tres, **other})


# What may befall a record: each leaves no JSON behind.
BREAKS: dict[str, Callable[[str], str]] = {
    "a raw newline in a string": lambda text: text.replace("quoted", "quo\nted", 1),
    "a missing number": lambda text: text.replace('"count": 1', '"count": ', 1),
    "a missing quote": lambda text: text.replace('"ml"', '"ml', 1),
    "a missing bracket": lambda text: text.replace('"count": 2}]', '"count": 2}', 1),
    "a brace too few": lambda text: text[:-1],
    "nested deep": lambda text: text[:-1] + ', "deep": ' + "[" * 3_000 + "]" * 3_000 + "}",
    "nested deep and never closed": lambda text: text[:-1] + ', "deep": ' + "[" * 3_000 + "}",
    "an integer of 5,000 digits": lambda text: text.replace('"count": 1', '"count": ' + "1" * 5_000, 1),
    "Infinity": lambda text: text.replace('"count": 1', '"count": Infinity', 1),
    "NaN": lambda text: text.replace('"count": 1', '"count": NaN', 1),
    "a bad escape": lambda text: text.replace("quoted", "quo\\xted", 1),
}  # fmt: skip


def test_every_break_breaks() -> None:
    for name, broken in BREAKS.items():
        with pytest.raises((ValueError, RecursionError)):
            print(name, json.loads(broken(record(1)), parse_constant=int))


@settings(max_examples=40, deadline=None)
@given(
    documents=st.lists(st.lists(st.sampled_from(["", "", *BREAKS]), max_size=6), min_size=1, max_size=3),
    piece=PIECES,
    between=st.sampled_from(["", "\n", " \r\n\t"]),
)
def test_what_is_whole_is_read_and_what_is_broken_is_one_reject(
    documents: list[list[str]], piece: int, between: str
) -> None:
    text, number, whole, last = "", 0, [], []
    for kinds in documents:
        result = []
        for kind in kinds:
            number += 1
            result.append(BREAKS[kind](record(number)) if kind else record(number))
            whole += [number] * (not kind)
        last.append(kinds[-1] if kinds else "")
        text += f'{{"meta": {{"jobs": []}}, "jobs": [{f",{between}".join(result)}], "errors": [{{"n": 0}}]}}{between}'
    found = elements(text, piece)
    assert [element.value["n"] for element in found if not element.wrong] == whole
    broken = sum(bool(kind) for kinds in documents for kind in kinds)
    wrong = sum(bool(element.wrong) for element in found)
    # of the last record of a list with a quote or bracket too few nobody can tell where it ends: it may take in the end
    # of its list
    assert broken <= wrong <= broken + sum(kind in OPEN for kind in last)


OPEN = {"a missing quote", "a missing bracket", "a brace too few", "nested deep and never closed"}


@pytest.mark.parametrize("end", ["]", "]}", "}", "]}]", "]]}}", '], "jobs": [', '}], "errors": [}'])
@pytest.mark.parametrize("piece", [997, 1 << 20])
def test_a_list_that_is_closed_too_early_goes_on(end: str, piece: int) -> None:
    """Brackets too many behind the third of 40 records, in the first of two documents."""
    result = [record(n) + (end if n == 2 else "") for n in range(40)]
    found = elements(f'{{"jobs": [{", ".join(result)}]}}\n{{"jobs": [{record(40)}]}}', piece)
    assert [element.value["n"] for element in found if not element.wrong] == list(range(41))
    assert sum(bool(element.wrong) for element in found) <= 4


def test_what_cannot_be_delimited_is_one_reject_with_its_extent() -> None:
    text = f'{{"jobs": [{record(1)}, {{"account": "never closed, {"x" * 10_000}'
    first, second = elements(text, 997)
    assert (first.value["n"], second.wrong) == (1, "10,027 characters are not valid JSON: the file ends within it")
    assert second.text.startswith('{"account": "never closed') and len(second.text) == 2_000


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"jobs": [1, 2', ["the file ends within the list of jobs"]),
        ('{"jobs": [{}, ', ["the file ends within the list of jobs"]),
        ('{"jobs": [{}]} {"errors": []}', ["a JSON document without a list of jobs"]),
        (
            '{"jobs": [{}]} sacct: error {"jobs": [{}]}',
            ["characters are not valid JSON: text between JSON documents"],
        ),
        ('{"jobs": [{}], oops, "jobs": [{}]}', ["6 characters are not valid JSON: expected a key and its value"]),
        ('{"jobs": [{}], {}, {}]}', ["8 characters are not valid JSON: expected a key and its value"]),
        ('{"jobs": [{}]}', []),
    ],
)
def test_what_stands_around_lists(text: str, wrong: list[str]) -> None:
    found = elements(text)
    result = [element.wrong for element in found if element.wrong]
    assert len(result) == len(wrong) and all(part in whole for part, whole in zip(wrong, result, strict=True)), result
    assert [e.value for e in found if not e.wrong][:1] in ([{}], [1])


def test_a_broken_record_of_any_length_takes_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_documents, "LONGEST", 20_000)
    monkeypatch.setattr(json_documents, "LONGEST_MATCHED", 20_000)
    held = []
    more = Documents._more

    def watched(documents: Documents) -> bool:
        held.append(len(documents._text))
        return more(documents)

    monkeypatch.setattr(Documents, "_more", watched)
    endless = record(2, steps=["x" * 100] * 10_000)
    found = elements(f'{{"jobs": [{record(1)}, {endless}, {record(3)}]}}', 5_000)
    assert [bool(element.wrong) for element in found] == [False, True, False]
    assert f"{len(endless) + 2:,} characters" in found[1].wrong and max(held) < 30_000


def ingested(lake: Lake, *records: str) -> FileResult:
    (result,) = lake.ingest(lake.put("dump.json", f'{{"meta": {{"Slurm": {{}}}}, "jobs": [{", ".join(records)}]}}'))
    return result


def text(number: int, **other: Any) -> str:
    return json.dumps(job(False, job_id=number, steps=[], **other))


def test_documents_one_after_the_other_and_a_nested_list_ahead(lake: Lake) -> None:
    day = [f'{{"meta": {{"jobs": []}}, "jobs": [{text(n)}], "errors": []}}' for n in (1, 2, 3)]
    (result,) = lake.ingest(lake.put("dump.json", "\n".join(day)))
    assert (result.rows, result.allocations, result.rejects) == (3, 3, 0)
    assert [row["line"] for row in lake.rows("jobs")] == [1, 2, 3]


def _with(number: int, old: str, new: str) -> str:
    plain = text(number)
    assert old in plain
    return plain.replace(old, new, 1)


HOSTILE = {
    "half a surrogate pair in a name": (_with(2, '"a|b\\nc"', '"\\ud800"'), "half a surrogate pair"),
    "half a surrogate pair in a TRES": (_with(2, '"gpu:a100"', '"gpu:\\udfff"'), "half a surrogate pair"),
    "Infinity": (_with(2, '"elapsed": 3600', '"elapsed": Infinity'), "Infinity is not a JSON number"),
    "NaN": (_with(2, '"elapsed": 3600', '"elapsed": NaN'), "NaN is not a JSON number"),
    "1e999": (_with(2, '"elapsed": 3600', '"elapsed": 1e999'), "infinity"),
    "steps that are a number": (_with(2, '"steps": []', '"steps": 7'), "steps '7' is not a list"),
    "flags that are a number": (_with(2, '"flags": ["STARTED_ON_BACKFILL"]', '"flags": 7'), "flags '7' is not a list"),
    "an integer of 5,000 digits": (_with(2, '"elapsed": 3600', f'"elapsed": {"9" * 5_000}'), "5000 digits"),
    "nested 100,000 deep": (_with(2, '"elapsed": 3600', f'"elapsed": {"[" * 100_000}{"]" * 100_000}'), "too deep"),
    "nested 900 deep": (_with(2, '"nodes": "n[01-02]"', f'"nodes": {"[" * 900}{"]" * 900}'), "node list"),
    "a number where a record is due": ("7", "TypeError"),
    "a step that is a number": (_with(2, '"steps": []', '"steps": [7]'), "not a step record"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_value_costs_its_own_record(lake: Lake, name: str) -> None:
    record, found = HOSTILE[name]
    result = ingested(lake, text(1), record, text(3))
    is_step = "step that" in name
    assert (result.rows, result.allocations, result.rejects) == (3 + is_step, 2 + is_step, 1)
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 2 and found in reject["reason"] and len(reject["reason"]) < 400
    assert {1, 3} <= {row["job_id_raw"] for row in lake.rows("jobs")}

"""What a table shows, and the words that are explained where they first stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from reports.build import SECTIONS, build_report, render, section_data
from reports.glossary import TERMS, explained
from reports.layout import Section, TableView, columns
from reports.sections.load import load
from reports.source import Remarks, Source
from tests.reports import warehouse
from traces.store.contents import cluster_names
from traces.store.folder import DataFolder


def _table(rows: list[dict[str, Any]]) -> TableView:
    return TableView("t", "Title", "Caption.", columns("who|who", "n|n|count", "share|share|percent"), rows)


@pytest.mark.parametrize(
    ("rows", "holds"),
    [
        ([], False),
        ([{"who": "a", "n": 0, "share": None}, {"who": "b", "n": 0, "share": 0.0}], False),
        ([{"who": "a", "n": 0, "share": None}, {"who": "b", "n": 1, "share": None}], True),
    ],
)
def test_a_table_of_zeros_holds_nothing(rows: list[dict[str, Any]], holds: bool) -> None:
    assert _table(rows).holds_something is holds


def test_a_column_that_is_empty_in_every_row_is_left_out() -> None:
    table = _table([{"who": "a", "n": 0, "share": None}, {"who": "b", "n": 1}])
    assert [column.name for column in table.known_columns] == ["who", "n"]


def test_no_table_of_the_report_is_empty(full_report: Path) -> None:
    bodies = re.findall(r"<tbody>(.*?)</tbody>", full_report.read_text(encoding="utf-8"), re.DOTALL)
    assert len(bodies) > 20 and all("<td" in body for body in bodies if body)


def test_words_of_the_first_page_are_explained_there_alone_and_each_fold_out_explains_its_own() -> None:
    one = Section("one", "One", sentences=["Jobs that overlap."])
    two = Section("two", "Two", sentences=["The overlap again, and the regret."])
    three = Section("three", "Three", missing=["No regret."])
    assert [list(words) for words in explained([one, two, three])] == [["overlap (O)"], ["regret"], ["regret"]]


def test_every_word_of_the_comparison_is_explained_beside_it(full_report: Path) -> None:
    html = full_report.read_text(encoding="utf-8")
    first = re.findall(r"<dfn>(.*?)</dfn>", html[: html.index('class="waits"')])
    policies = html[html.index('class="policies"') : html.index('class="fidelity"')]
    beside = re.findall(r"<dfn>(.*?)</dfn>", policies)
    assert not set(first) & set(beside)
    for word in ("world", "setting", "interruption (I)", "overlap (O)", "pair, handover", "regret", "reactive"):
        assert word in first + beside and word in TERMS


def test_intervals_are_numbers_in_json(full_data: DataFolder) -> None:
    tables = section_data(full_data, "gpu-lab", "policies")["tables"]
    ends = [row["interruption_ci"] for row in tables["comparison-8-48-plain"] if row["interruption_ci"]]
    assert ends and all(low <= high for low, high in ends)
    change = section_data(full_data, "gpu-lab", "change")
    assert change["tables"]["what_if"][1]["interval"] == [-3000.0, -1800.0]
    json.dumps(change)


def test_a_section_that_holds_nothing_is_one_line_with_the_reason(tmp_path: Path) -> None:
    data = warehouse.one_job(tmp_path)
    why = {"tiny": Remarks(no_policies="no job of it has a <limit>")}
    html = build_report(data, remarks=why).read_text(encoding="utf-8")
    (line,) = re.findall(r"<summary><h2>Provisioning policies</h2>(.*?)</summary>", html)
    assert line == '<span class="gist">No policies can be compared here: no job of it has a &lt;limit&gt;.</span>'
    html = build_report(data).read_text(encoding="utf-8")
    assert "No policies were compared on this cluster yet" in html


def test_a_list_beside_the_page_is_linked_once() -> None:
    assert "offenders.csv" not in render([])
    assert render([], offenders="offenders.csv").count('<a href="offenders.csv">') == 1


def test_real_clusters_come_before_generated_ones(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    made = {"bb-made": True, "zz-real": False, "aa-real": False}
    files = [warehouse.trace_file(name, 0) | {"is_generated": is_generated} for name, is_generated in made.items()]
    warehouse.write(data, warehouse.empty_tables() | {"trace_files": pl.DataFrame(files)})
    html = build_report(data).read_text(encoding="utf-8")
    assert re.findall(r"<h1><bdi>(.*?)</bdi>", html) == ["aa-real", "zz-real", "bb-made"]


def test_a_report_is_of_one_warehouse_whatever_is_built_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, newer = DataFolder(tmp_path / "data"), DataFolder(tmp_path / "newer")
    for folder, name in ((data, "before"), (newer, "after")):
        files = pl.DataFrame([warehouse.trace_file(name, 0)])
        warehouse.write(folder, warehouse.empty_tables() | {"trace_files": files})
    known: list[str] = []

    def built_meanwhile(source: Source) -> Section:
        newer.warehouse.rename(data.warehouse)
        known.extend(cluster_names(source.data))
        return load(source)

    monkeypatch.setitem(SECTIONS, "load", built_meanwhile)
    build_report(data, section="load")
    assert known == ["before"] and cluster_names(data) == ["after"]

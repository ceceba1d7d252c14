"""Tables and plots for the UI: what is cut, what is escaped."""

from __future__ import annotations

from datetime import datetime

import polars as pl

from assets.metadata import figures, plot, shown, table


def test_user_text_cannot_leave_its_cell() -> None:
    hostile = "a|b\n| c | <img src=x onerror=alert(1)> [x](javascript:1) ![y](z) `k` **b**"
    text = table(pl.DataFrame({"name|": [hostile], "n": [1.23456]})).value or ""
    head, rule, row = text.split("\n")
    assert head.count("|") == rule.count("|") == row.count("|") == 3
    assert not set("<>[]!`*") & set(row)
    assert row.endswith("| 1.235 |")


def test_a_long_table_says_how_long_it_is() -> None:
    text = table(pl.DataFrame({"n": range(100)}), rows=3).value or ""
    assert text.count("\n| ") == 4 and text.endswith("3 of 100 rows")


def test_key_figures_of_every_column() -> None:
    frame = pl.DataFrame(
        {
            "user|": ["<b>", "a", None],
            "wait_s": [1, 3000, None],
            "share": [None, None, None],
            "at": [datetime(2023, 2, 6), datetime(2023, 2, 7), datetime(2023, 2, 8)],
        },
        schema_overrides={"share": pl.Float64},
    )
    text = figures(frame).value or ""
    _, _, *rows = text.split("\n")
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert cells[0] == ["user&#124;", "2", "2", "", "", ""]
    assert cells[1] == ["wait&#95;s", "2", "2", "1", "1,500", "3,000"]
    assert cells[2] == ["share", "0", "0", "", "", ""]
    assert cells[3] == ["at", "3", "3", "2023-02-06 00:00:00", "2023-02-07 00:00:00", "2023-02-08 00:00:00"]


def test_a_plot_is_self_contained() -> None:
    text = plot({"a": ([0, 1], [1, 0]), "b": ([], [])}, x="overlap, h", y="interruption, h").value or ""
    assert text.startswith("![interruption, h](data:image/png;base64,iVBOR")


def test_row_counts_are_where_the_ui_looks() -> None:
    result = shown(rows=3, reused=True)
    assert result.metadata is not None
    assert result.metadata["dagster/row_count"] == 3

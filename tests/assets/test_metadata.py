"""Figures, tables and plots for the UI: what is drawn, what is cut, what is left out."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import dagster as dg
import polars as pl

from assets.shared.metadata import figure_metadata, materialization, numbers, plot, spread_metadata, table


def records(value: dg.TableMetadataValue) -> list[dict[str, Any]]:
    return [dict(record.data) for record in value.records]


def test_cells_are_text_and_numbers_that_json_can_hold() -> None:
    hostile = "a|b\n| c | <img src=x onerror=alert(1)> [x](javascript:1)" + "x" * 99
    frame = pl.DataFrame(
        {
            "name|": [hostile],
            "n": [7],
            "x": [1.2345678],
            "no": [float("nan")],
            "at": [datetime(2023, 2, 6)],
            "is": [True],
        }
    )
    made = table(frame)
    (row,) = records(made)
    assert row["name|"] == "a|b | c | <img src=x onerror=alert(1)> [x](javascript:1)xxxx" and len(row["name|"]) == 60
    assert (row["n"], row["x"], row["no"], row["at"], row["is"]) == (7, 1.2346, None, "2023-02-06 00:00:00", True)
    assert [column.type for column in made.schema.columns] == ["string", "int", "float", "float", "string", "bool"]
    json.dumps(row, allow_nan=False)


def test_a_long_table_says_how_much_is_not_shown() -> None:
    assert records(table(pl.DataFrame({"n": range(1100)}), rows=3)) == [
        {"n": 0}, {"n": 1}, {"n": 2}, {"n": "... 1,097 more rows"},
    ]  # fmt: skip
    assert records(table(pl.DataFrame({"n": range(3)}), rows=3))[-1] == {"n": 2}
    assert records(table(pl.DataFrame())) == []


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
    cells = [list(row.values()) for row in records(figure_metadata(frame))]
    assert cells[0] == ["user|", 2, 2, None, None, None]
    assert cells[1] == ["wait_s", 2, 2, "1", "1,500", "3,000"]
    assert cells[2] == ["share", 0, 0, None, None, None]
    assert cells[3] == ["at", 3, 3, "2023-02-06 00:00:00", "2023-02-07 00:00:00", "2023-02-08 00:00:00"]


def test_what_is_drawn_over_time_is_a_number() -> None:
    made = numbers(rows=3, cost_h=1.5, whole_h=2.0, none=None, no=float("nan"), far=float("inf"))
    assert made == {
        "rows": dg.MetadataValue.int(3),
        "cost_h": dg.MetadataValue.float(1.5),
        "whole_h": dg.MetadataValue.float(2.0),
    }
    waits = spread_metadata(pl.Series([0, 3600, None, 7200]), "wait")
    assert {name: value.value for name, value in waits.items()} == {
        "wait_mean_h": 1.0, "wait_p50_h": 1.0, "wait_p95_h": 2.0,
    }  # fmt: skip
    assert spread_metadata(pl.Series([], dtype=pl.Int64), "wait") == {}


def test_a_plot_is_self_contained() -> None:
    text = plot({"a": ([0, 1], [1, 0]), "b": ([], [])}, x="overlap, h", y="interruption, h").value or ""
    assert text.startswith("![interruption, h](data:image/png;base64,iVBOR")


def test_row_counts_are_where_the_ui_looks() -> None:
    result = materialization(rows=3, reused=True, version="abc")
    assert result.metadata is not None and result.data_version == dg.DataVersion("abc")
    assert result.metadata["dagster/row_count"] == 3

"""What the UI shows of a table of the analytics."""

from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl

from assets import features
from features.catalog import FEATURES

DECLARED = {table.name: table for module in FEATURES.values() for table in module.TABLES}


def test_lines_are_columns_of_declared_tables() -> None:
    for name, (x, columns, _) in features.LINES.items():
        assert {x, *columns} <= set(DECLARED[name].names)


def test_a_long_series_is_drawn_thinned_and_an_empty_one_not() -> None:
    days = [datetime(2023, 1, 1) + timedelta(days=i) for i in range(5000)]
    frame = pl.DataFrame({"day_utc": days, "arrivals": range(5000), "queued_mean": 1.0, "running_mean": 2.0})
    drawn = features._drawn("load", frame)
    assert str(drawn["plot"].value).startswith("![jobs](data:image/png;base64,")
    assert features._drawn("load", frame.clear()) == {} and features._drawn("failures", frame) == {}


def test_a_table_that_knows_no_figure_is_not_drawn() -> None:
    frame = pl.DataFrame({"utilization_from": [0.0], "empty_node_share_mean": [None]})
    assert features._drawn("empty_nodes", frame) == {}

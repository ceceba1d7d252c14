"""What the report says of queue-time prediction: who answers, how well, and where it fails."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from reports.build import build_report, section_data
from reports.drift import queue_time_sentence
from tests.reports import warehouse
from tests.reports.started import queue_time_drift
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder


def test_the_section_says_who_answers_how_well_and_where_it_fails(full_data: DataFolder) -> None:
    found = section_data(full_data, "gpu-lab", "start")
    how_well, who, where, drifted = found["sentences"]
    assert (
        "Half of the 120 jobs that waited over 10 minutes started within 1 h 30 min of the start that boosting "
        "predicted" in how_well
    )
    assert "95 % intervals contained 86.0 % of all 200 waits" in how_well
    assert (
        "Version 2, boosting, makes the predictions (the newest candidate, boosting, was better than the best naive"
        in who
    )
    assert (
        "Its predictions are worst in the week of 2024-02-15: its 95 % intervals contained 60.0 % of 50 waits" in where
    )
    assert "longer than predicted (median 9 h, predicted 2 h)" in where and "1 of 6 weeks and size classes" in where
    assert drifted == (
        "In the week of 2024-03-11 queue-time champion version 2 had, on 50 jobs, a CRPS of 1.50 h (promised 1.25 h, "
        "at most 2.50 h) and 20.0 % of waits outside its 95 % intervals (promised 6.0 %, at most 15.0 %). The promised "
        "values are the medians of the 9 weeks in which it was evaluated. It is worse than in those weeks (by chance, "
        "one week in 10 would be). Retraining is requested."
    )


def test_a_week_as_promised_asks_for_nothing() -> None:
    said = queue_time_sentence(queue_time_drift("lab", value=0.05))
    assert said.endswith("It is no worse than promised.") and "requested" not in said
    assert queue_time_sentence(queue_time_drift("lab", value=0.05).clear()) == ""


def test_every_method_has_n_and_its_intervals(full_data: DataFolder) -> None:
    tables = section_data(full_data, "gpu-lab", "start")["tables"]
    assert [(row["method"], row["kind"], row["n"], row["difference_ci"]) for row in tables["start_methods"]] == [
        ("boosting", "", 200, [-1.25, -0.75]),
        ("limits", "naive", 200, [-0.25, 0.25]),
    ]
    assert [row["part"] for row in tables["start_parts"]][3:] == [
        "week of 2024-02-22", "size: smallest", "size: larger",
    ]  # fmt: skip


def test_without_a_model_the_section_is_left_out_and_says_why(tmp_path: Path) -> None:
    tables = {"trace_files": pl.DataFrame([warehouse.trace_file("void", 0, rejects=0)])}
    data = warehouse.with_features(tmp_path, tables, ClusterSettings("void"))
    assert "run the job `queue_time`" in section_data(data, "void", "start")["missing"][0]
    assert "When will my job start?" not in build_report(data).read_text(encoding="utf-8")

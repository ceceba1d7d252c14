"""What the report says of a champion whose cluster has changed."""

from __future__ import annotations

import polars as pl

from models.tables import CHAMPION_DRIFT, frame
from reports.drift import drift_sentence
from tests.reports.drifted import champion_drift


def test_a_week_beyond_the_bound_asks_for_retraining_and_says_in_what() -> None:
    found = champion_drift("lab")
    assert drift_sentence(found) == (
        "The week of 2024-03-11 differs in nodes asked for, who submits from the 19 weeks from 2023-10-23 to "
        "2024-03-04 that champion version 1 was fitted on, by more than these weeks differ among themselves (by "
        "chance, one week in 20 would). Retraining is requested."
    )
    calm = drift_sentence(found.filter(pl.col("feature") == "wait_s"))
    assert (
        "2024-03-11" in calm and "no more than these weeks differ among themselves" in calm and "requested" not in calm
    )
    assert drift_sentence(frame(CHAMPION_DRIFT, [])) == ""

"""Section `start`: when will my job start?

It compares the predictions of the newest jobs with their waits, and names where the predictions fail.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl

from reports import figures
from reports import format as fmt
from reports.drift import queue_time_sentence
from reports.layout import Figure, Section, TableView, columns
from reports.source import Source
from simulator.metrics import NOTICED_WAIT_S
from traces import instants
from traces.counted import counted
from traces.units import HOUR_S

LEAST_COVERED = 0.9  # share of waits in the 95 % intervals; a week or size class below it counts as a failure
LEAST_JOBS = 20  # in a week or size class, to be named
_MINUTES = NOTICED_WAIT_S // 60


def start(source: Source) -> Section:
    """Return the released queue-time model and all other methods, by week and by size, and where they fail."""
    section = Section("start", "When will my job start?")
    scores = source.rows("queue_time_scores")
    if scores.is_empty():
        section.applies = False
        section.missing.append("This cluster has no queue-time model yet: run the job `queue_time`.")
        return section
    rows = [_shown(row) for row in scores.sort("crps_h").to_dicts()]
    releases = source.rows("queue_time_releases")
    newest = releases.sort("decided_utc").to_dicts()[-1] if not releases.is_empty() else None
    shown = next((row for row in rows if newest and row["method"] == newest["champion_method"]), rows[0])
    ending = source.caption(shown["n"], "jobs", None, (shown["from_utc"], shown["to_utc"]))
    section.sentences += _sentences(shown, newest)
    section.sentences += _failures(shown)
    if drifted := queue_time_sentence(source.rows("queue_time_drift")):
        section.sentences.append(drifted)
    section.figures += _figures(source, shown, ending)
    section.tables += [_methods(rows, ending), _parts(shown, ending)]
    return section


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row with its intervals, weeks and sizes parsed for the tables."""
    ends = {
        name: None if row[f"{name}_low_h"] is None else [row[f"{name}_low_h"], row[f"{name}_high_h"]]
        for name in ("crps", "difference")
    }
    return {
        **row,
        "crps_ci": ends["crps"],
        "difference_ci": ends["difference"],
        "kind": "naive" if row["is_naive"] else "",
        "weeks": json.loads(row["weeks"]),
        "sizes": json.loads(row["sizes"]),
    }


def _sentences(row: dict[str, Any], newest: dict[str, Any] | None) -> list[str]:
    name = fmt.text(row["method"])
    sentences = [
        f"Half of the {counted(row['n_over_10min'], 'job')} that waited over {_MINUTES} minutes started within "
        f"{fmt.duration(_seconds(row['median_ae_h']))} of the start that {name} predicted at submission. Its 95 % "
        f"intervals contained {fmt.percent(row['coverage_95'])} of all {row['n']:,} waits and were on average "
        f"{fmt.duration(_seconds(row['width_95_h']))} wide. All these jobs were submitted after the training data."
    ]
    if newest is not None:
        status = "a provisional champion: " if newest["provisional"] else ""
        sentences.append(
            f"Version {newest['registered_version']}, {fmt.text(newest['champion_method'])}, makes the predictions "
            f"({status}the newest candidate, {fmt.text(newest['method'])}, {_verdict(newest['verdict'])} "
            f"{fmt.text(newest['opponent'])})."
        )
    return sentences


def _verdict(verdict: str) -> str:
    return {"better": "was better than", "worse": "was worse than"}.get(
        verdict, "was not significantly better or worse than"
    )


def _seconds(hours: float | None) -> float | None:
    return None if hours is None else hours * HOUR_S


def _failures(row: dict[str, Any]) -> list[str]:
    """Say where the 95 % intervals covered less than LEAST_COVERED, and how the waits differed there."""
    parts = [(f"in the week of {week['week_utc'][:10]}", week) for week in row["weeks"]]
    parts += [(f"for the size class “{size['size']}”", size) for size in row["sizes"]]
    failing = [
        (words, part) for words, part in parts if part["n"] >= LEAST_JOBS and part["coverage_95"] < LEAST_COVERED
    ]
    if not failing:
        return [
            f"In every week and size class of at least {LEAST_JOBS} jobs its 95 % intervals contained at least 90 % of "
            "the waits."
        ]
    words, worst = min(failing, key=lambda one: float(one[1]["coverage_95"]))
    direction = "longer" if worst["median_wait_h"] > worst["median_predicted_h"] else "shorter"
    return [
        f"Its predictions are worst {words}: its 95 % intervals contained {fmt.percent(worst['coverage_95'])} of "
        f"{worst['n']:,} waits. These were {direction} than predicted (median "
        f"{fmt.duration(_seconds(worst['median_wait_h']))}, predicted "
        f"{fmt.duration(_seconds(worst['median_predicted_h']))}). Coverage is below 90 % in {len(failing)} of "
        f"{counted(len(parts), 'week')} and size classes, whose waits differ from the training data."
    ]


def _figures(source: Source, row: dict[str, Any], ending: str) -> list[Figure]:
    name = fmt.text(row["method"])
    drawn = []
    if len(row["weeks"]) > 1:
        weeks = [instants.parse(week["week_utc"]) for week in row["weeks"]]
        series = {
            "waited": (np.array([week["median_wait_h"] for week in row["weeks"]]), "recorded"),
            "predicted": (np.array([week["median_predicted_h"] for week in row["weeks"]]), "simulated"),
        }
        drawn.append(
            Figure(
                "start-by-week",
                f"Predicted against actual by week, {name}",
                f"Medians over the week's jobs of the wait and of the predicted median, h. {ending}",
                figures.over_time(f"{source.slug}-start-weeks", weeks, series, "median wait, h"),
                "Median wait and median predicted wait by week; the table has the figures.",
            )
        )
    predictions = source.rows("queue_time_predictions")
    if not predictions.is_empty():
        predictions = predictions.filter(pl.col("method") == row["method"])
    if predictions.height:
        curves = {
            "waited": (predictions["wait_s"].to_numpy().astype(np.float64), "recorded"),
            "predicted median": (predictions["p50_s"].to_numpy().astype(np.float64), "simulated"),
            "predicted: 90 % within": (predictions["p90_s"].to_numpy().astype(np.float64), "class2"),
        }
        drawn.append(
            Figure(
                "start-spread",
                f"Actual and predicted waits, {name}",
                "Share of jobs whose wait, predicted median or predicted 0.9 quantile is at most this long (log axis; "
                f"0 counts as 1 s). {ending}",
                figures.ecdf(f"{source.slug}-start-spread", curves, "wait from submission"),
                "Cumulative distributions of waits, of predicted medians and of predicted 0.9 quantiles.",
            )
        )
    return drawn


def _methods(rows: list[dict[str, Any]], ending: str) -> TableView:
    few = " Few blocks of 7 days: intervals are indicative." if rows[0]["indicative"] else ""
    return TableView(
        "start_methods",
        "Every method on the same jobs",
        "CRPS: the mean error of the whole predicted distribution, h. Lower is better, and for a single predicted "
        f"value it is the absolute error. Minus best naive: CRPS minus that of {fmt.text(rows[0]['best_naive'])} on "
        "the same jobs; below 0 is better. Each method was fitted on "
        f"{counted(rows[0]['fitted_on'], 'job')} known at the start of the window. The figures exclude "
        f"{counted(rows[0]['never_started'], 'job')} that never started.{few} {ending}",
        columns(
            "method|method|name", "kind|kind|text", "n|jobs|count", "crps_h|CRPS, h|number", "crps_ci|95 %|interval",
            "difference_h|minus best naive, h|number", "difference_ci|95 % |interval",
            "balanced_accuracy|balanced accuracy|percent", "brier|Brier|number", "median_ae_h|median error, h|number",
            "within_factor_2|within a factor of two|percent", "spearman|rank correlation|number",
            "coverage_50|50 % coverage|percent", "coverage_80|80 % coverage|percent",
            "coverage_95|95 % coverage|percent", "width_95_h|95 % width, h|number",
        ),
        rows,
    )  # fmt: skip


def _parts(row: dict[str, Any], ending: str) -> TableView:
    parts = [{"part": f"week of {week['week_utc'][:10]}", **week} for week in row["weeks"]]
    parts += [{"part": f"size: {size['size']}", **size} for size in row["sizes"]]
    return TableView(
        "start_parts",
        f"Predicted against actual by week and size, {fmt.text(row['method'])}",
        f"Size classes: the smallest size, up to four times the smallest, and larger. {ending}",
        columns(
            "part|jobs of|text", "n|jobs|count", "median_wait_h|median wait, h|number",
            "median_predicted_h|predicted, h|number", "mean_wait_h|mean wait, h|number", "crps_h|CRPS, h|number",
            "coverage_95|95 % coverage|percent",
        ),
        parts,
    )  # fmt: skip

"""The pipeline's advice about a cluster as tables: the candidates that were judged, and the picture of the best."""

from __future__ import annotations

import polars as pl

from models.tables import frame
from traces.clusters import ClusterSettings
from traces.schema import CLUSTER, FLAG, FLOAT, INT, TEXT, Column, Table
from traces.store.folder import DataFolder

CANDIDATES = 60  # of the pipeline's search, which takes seconds; `baton advise` searches longer

ADVICE = Table(
    "advice",
    "One row a candidate of the advisor's search: changes of settings, judged on weeks that the search never saw",
    (
        CLUSTER,
        Column("place", INT, "", "place in the search; 1 is the best", nullable=False),
        Column("changes", TEXT, "", "changes, as `baton whatif --change` reads them", nullable=False),
        Column("objective", TEXT, "", "what was minimised, in its own unit (waits: s)", nullable=False),
        Column("jobs", INT, "jobs", "jobs of the judged weeks", nullable=False),
        Column("base_value", FLOAT, "", "objective in the replay without changes", nullable=False),
        Column("base_error", FLOAT, "", "its distance from the record", nullable=False),
        Column("value", FLOAT, "", "objective with the changes", nullable=False),
        Column("difference", FLOAT, "", "value minus base_value; negative is better", nullable=False),
        Column("difference_low", FLOAT, "", "its 95 % interval, blocks of 7 days; null under two blocks"),
        Column("difference_high", FLOAT, "", "upper end of it"),
        Column("verdict", TEXT, "", "less, more, no change, or cannot tell", nullable=False),
        Column("whole_difference", FLOAT, "", "difference in a replay of the weeks in one piece", nullable=False),
        Column("error_share", FLOAT, "", "share of the difference that base_error could explain", nullable=False),
        Column("losing_groups", INT, "groups", "accounts, else users, that would wait too much longer", nullable=False),
        Column("is_recommended", FLAG, "", "whether to make the changes", nullable=False),
        Column("why_not", TEXT, "", "why not; null if recommended"),
        Column("trust", TEXT, "", "figures; direction: the base is too far from the record for more", nullable=False),
        Column("trust_why", TEXT, "", "distance of the base from the record", nullable=False),
        Column("to_do", TEXT, "", "what to type for a recommended change, one line each", nullable=False),
    ),
    key=("cluster", "place"),
)  # fmt: skip

ADVICE_CURVES = Table(
    "advice_curves",
    "One row a point of a curve: waits and queue of the judged weeks, replayed anew every week, for one candidate",
    (
        CLUSTER,
        Column("place", INT, "", "place of the candidate in advice: the recommended one, else the first",
        nullable=False),
        Column("curve", TEXT, "", "waits: their distribution; queue: mean number of pending jobs", nullable=False),
        Column("point", INT, "", "place on the curve; 1 is the first", nullable=False),
        Column("at", FLOAT, "", "waits: share of jobs; queue: end of the period, days since the first submission",
        nullable=False),
        Column("recorded", FLOAT, "", "waits: that share of jobs waits at most so long, s; queue: jobs; recorded",
        nullable=False),
        Column("unchanged", FLOAT, "", "the same, replayed without a change", nullable=False),
        Column("changed", FLOAT, "", "the same, replayed with the candidate's changes", nullable=False),
    ),
    key=("cluster", "curve", "point"),
)  # fmt: skip

TABLES = (ADVICE, ADVICE_CURVES)


def advice_tables(data: DataFolder, settings: ClusterSettings) -> list[pl.DataFrame]:
    """Make the rows of TABLES; none if nothing was better. Raises InputError as `advice_on` does."""
    from models.what_if.advice.advise import AdviceQuestion, advice_on
    from models.what_if.advice.curves import curve_rows
    from models.what_if.recorded.changes import TOGETHER

    result = advice_on(data, settings, AdviceQuestion(candidates=CANDIDATES))
    base, rows = result["base"], []
    for place, one in enumerate(result["candidates"], 1):
        low, high = one["ci95"] or (None, None)
        rows.append(
            {
                "cluster": settings.name,
                "place": place,
                "changes": TOGETHER.join(one["changes"]),
                "objective": result["objective"],
                "jobs": base["jobs"],
                "base_value": base["value"],
                "base_error": base["error"],
                "value": one["value"],
                "difference": one["difference"],
                "difference_low": low,
                "difference_high": high,
                "verdict": one["verdict"],
                "whole_difference": one["whole_difference"],
                "error_share": one["error_share"],
                "losing_groups": len(one["losers"]),
                "is_recommended": one["why_not"] is None,
                "why_not": one["why_not"],
                "trust": one["trust"]["level"],
                "trust_why": one["trust"]["why"],
                "to_do": "\n".join([*result["slurm_conf"], *result["commands"]]) if one["why_not"] is None else "",
            }
        )
    drawn = result["curves"]
    points = [] if drawn is None else curve_rows({"cluster": settings.name, **drawn})
    return [frame(ADVICE, rows), frame(ADVICE_CURVES, points)]

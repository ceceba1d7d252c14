"""The pipeline's advice about a cluster as a table: one row for each candidate that was judged."""

from __future__ import annotations

import polars as pl

from models.tables import ADVICE, frame
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder

CANDIDATES = 60  # of the pipeline's search, which takes seconds; `baton advise` searches longer


def advice_table(data: DataFolder, settings: ClusterSettings) -> pl.DataFrame:
    """Make the rows of the table `advice`; none if nothing was better. Raises InputError as `advice_on` does."""
    from models.what_if.advice.advise import AdviceQuestion, advice_on
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
    return frame(ADVICE, rows)

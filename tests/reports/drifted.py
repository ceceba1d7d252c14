"""Two weeks of `champion_drift`: of the newer one two features are beyond their bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import polars as pl

from models.tables import CHAMPION_DRIFT, frame

# feature, week, index, bound
DRIFTED = (
    ("wait_s", datetime(2024, 3, 4), 0.9, 0.5),
    ("wait_s", datetime(2024, 3, 11), 0.1, 0.5),
    ("user_name", datetime(2024, 3, 11), 0.8, 0.4),
    ("nodes", datetime(2024, 3, 11), 0.5, 0.1),
)


def champion_drift(cluster: str) -> pl.DataFrame:
    return frame(CHAMPION_DRIFT, [_row(cluster, *one) for one in DRIFTED])


def _row(cluster: str, feature: str, week: datetime, psi: float, bound: float) -> dict[str, Any]:
    return {
        "cluster": cluster, "week_utc": week, "feature": feature, "champion_version": 1, "weeks": 19, "n_before": 900,
        "before_from_utc": datetime(2023, 10, 23), "before_until_utc": datetime(2024, 3, 4), "n": 50, "psi": psi,
        "bound": bound, "chance": 0.05, "is_beyond": psi > bound,
    }  # fmt: skip

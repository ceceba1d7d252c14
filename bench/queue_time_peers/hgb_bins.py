"""Gradient boosting on four classes of the wait from six numbers of the queue: the public baseline.

After the HGBC queue-time model that smpadhy published (a model card on Hugging Face): scikit-learn's
HistGradientBoostingClassifier of the bin of the wait from backlog minutes and jobs, running minutes and jobs, nodes and
limit. The distribution inside a bin is that of the fit's waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.queue_time.protocol import COLUMN, LEVELS, SHORT_S, Forecast, Rows, forecast_of
from traces.arrays import Float64s

EDGES_S = (float(SHORT_S), 3600.0, 6 * 3600.0, 24 * 3600.0)
INPUTS = ("pending_node_h", "pending_jobs", "limit_h", "size", "running_node_h", "running_jobs")
INSIDE = 40  # representative waits of a bin


@dataclass(frozen=True)
class HgbBins:
    """HistGradientBoostingClassifier with its defaults."""

    name: str = "hgb-bins"
    needs_queue: bool = False
    is_naive: bool = False

    def fit(self, rows: Rows, seed: int) -> _Classes:
        """Fit the classifier; the same seed gives the same answers."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        bins = np.searchsorted(EDGES_S, rows.wait_s, side="right")
        inside = np.stack([_inside(rows.wait_s[bins == one].astype(np.float64)) for one in np.unique(bins)])
        if len(inside) == 1:
            return _Classes(None, inside)
        model = HistGradientBoostingClassifier(random_state=seed, early_stopping=False)
        with _one_thread():
            return _Classes(model.fit(_inputs(rows), bins), inside)


def _one_thread() -> Any:
    """Use one thread: under other load, threads that wait for each other cost more than a second one saves."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1, "openmp")


def _inputs(rows: Rows) -> Float64s:
    return rows.observed[:, [COLUMN[name] for name in INPUTS]].astype(np.float64)


def _inside(wait_s: Float64s) -> Float64s:
    return np.asarray(np.quantile(wait_s, (np.arange(INSIDE) + 0.5) / INSIDE), np.float64)


@dataclass(frozen=True)
class _Classes:
    model: Any  # None if all waits of the fit were in one bin
    inside_s: Float64s  # (classes, INSIDE) rising

    def forecast(self, rows: Rows) -> Forecast:
        """Forecast the bins' waits, each bin with its probability."""
        with _one_thread():
            share = np.ones((len(rows), 1)) if self.model is None else self.model.predict_proba(_inputs(rows))
        upto = np.cumsum(np.repeat(share / INSIDE, INSIDE, axis=1), axis=1)
        points = self.inside_s.ravel()
        at = np.stack([(upto < level * (1 - 1e-9)).sum(axis=1) for level in LEVELS], axis=1)
        short = share @ (self.inside_s < SHORT_S).mean(axis=1)
        return forecast_of(points[np.minimum(at, len(points) - 1)], short)

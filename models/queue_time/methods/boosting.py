"""Distributional boosting: the probability of each bin of the wait, by gradient boosted trees on all features.

There are two fits of LightGBM's multiclass objective, whose quantiles are averaged. One uses bins of the wait itself.
The other uses bins of the wait relative to the start estimate by expected run times, and extrapolates to waits longer
than any of the fit. Both start from the outcomes of jobs with a similar estimate, so that trees only correct these.
Bins as a distribution: Weiss and Indurkhya, "Rule-based machine learning methods for functional prediction", JAIR 3,
1995.

A fitted model consists of arrays alone (`models.queue_time.methods.boosted`); these are released.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from features.submission.index import FEATURES
from models.provisioning.learning.trees import flatten
from models.provisioning.policies.lightgbm import tree_of
from models.queue_time.methods.bins import Bins
from models.queue_time.methods.boosted import BASE_CUTS_H, BoostedDistribution, BoostedPart, base_class
from models.queue_time.protocol import COLUMN, SHORT_S, Rows
from traces.arrays import Float64s, Int64s

BASE = COLUMN["start_estimate_expected_h"]
BINS = 16
ROUNDS = 80
OPTIONS = {
    "objective": "multiclass",
    "learning_rate": 0.05,
    "num_leaves": 11,
    "min_data_in_leaf": 40,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "boost_from_average": False,
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
PRIOR_ROWS = 30.0  # rows of an estimate class that weigh as much as all the others
LEAST_SHARE = 1e-6  # of a class, in the starting scores


@dataclass(frozen=True)
class Boosting:
    """Gradient boosting of a distribution on all features."""

    name: str = "boosting"
    needs_queue: bool = True
    is_naive: bool = False
    base: int = BASE  # column of the estimate of the starting scores, h

    def fit(self, rows: Rows, seed: int) -> BoostedDistribution:
        """Make two fits; the same seed gives the same bytes."""
        log_wait = np.log1p(rows.wait_s)
        base = np.log1p(np.maximum(rows.observed[:, self.base].astype(np.float64), 0.0) * 3600.0)
        kind = base_class(rows.observed[:, self.base])
        plain = _part(rows, log_wait, kind, Bins.of(log_wait, BINS, float(np.log1p(SHORT_S))), seed, relative=False)
        ratio = log_wait - base
        relative = _part(rows, ratio, kind, Bins.of(ratio, BINS), seed + 1, relative=True)
        return BoostedDistribution((plain, relative), self.base, float(rows.wait_s.max()), tuple(FEATURES))


def _part(rows: Rows, values: Float64s, kind: Int64s, bins: Bins, seed: int, *, relative: bool) -> BoostedPart:
    """Fit bins of `values` (n,)."""
    import lightgbm

    number, count = bins.classes(values), len(bins)
    start = start_from(number, count, kind)
    if count == 1:
        return BoostedPart(bins.points, start, relative, {}, np.zeros(0, np.int64))
    data = lightgbm.Dataset(rows.observed, number, init_score=start[kind].ravel(order="F"))
    booster = lightgbm.train({**OPTIONS, "num_class": count, "seed": seed}, data, ROUNDS)
    trees = [tree_of(tree["tree_structure"]) for tree in booster.dump_model()["tree_info"]]
    return BoostedPart(bins.points, start, relative, flatten(trees), np.arange(len(trees)) % count)


def start_from(number: Int64s, count: int, kind: Int64s) -> Float64s:
    """(classes of estimates, count) logarithm of the share of each bin among the jobs with a similar estimate."""
    overall = np.bincount(number, minlength=count) / len(number)
    shares = np.empty((len(BASE_CUTS_H) + 1, count))
    for one in range(len(shares)):
        mine = number[kind == one]
        shares[one] = (np.bincount(mine, minlength=count) + PRIOR_ROWS * overall) / (len(mine) + PRIOR_ROWS)
    return np.asarray(np.log(np.maximum(shares, LEAST_SHARE)), np.float64)

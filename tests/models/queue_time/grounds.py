"""Generated rows: waits that follow a noisy start estimate, in two partitions and two sizes."""

from __future__ import annotations

from functools import cache

import numpy as np

from features.submission.index import FEATURES
from models.queue_time.protocol import COLUMN, KnownStarts, Rows
from traces.units import DAY_S

ORIGIN_S = 1_700_000_000


@cache
def generated_rows(count: int = 700, seed: int = 0, days: int = 42) -> Rows:
    """Half the jobs find room at once and wait for seconds; the others wait about as long as the estimate says.

    So do their futures.
    """
    rng = np.random.default_rng(seed)
    submit = ORIGIN_S + np.sort(rng.integers(0, days * DAY_S, count))
    observed = np.abs(rng.normal(size=(count, len(FEATURES)))).astype(np.float32)
    estimate_h = np.where(rng.random(count) < 0.5, 0.0, rng.lognormal(1.0, 1.0, count))
    observed[:, COLUMN["start_estimate_expected_h"]] = estimate_h
    observed[:, COLUMN["start_estimate_h"]] = 2 * estimate_h
    size_class = rng.integers(0, 2, count)
    wait = np.where(
        estimate_h == 0, rng.exponential(30, count), estimate_h * 3600 * rng.lognormal(0, 0.3 + 0.5 * size_class, count)
    ).astype(np.int64)
    partition = rng.integers(0, 2, count)
    futures = np.rint(estimate_h[:, None] * 3600 * rng.lognormal(0, 0.4, (count, 8))).astype(np.int64)
    start = submit + wait
    order = np.argsort(start, kind="stable")
    past = KnownStarts(start[order], wait[order], partition[order])
    return Rows(observed, submit, wait, partition, size_class, past, futures)

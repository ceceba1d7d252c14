"""The shape of a job: one number for its size and limit. Imports numpy alone."""

from __future__ import annotations

import numpy as np

from traces.arrays import Int64s


def shapes(size: Int64s, limit_s: Int64s) -> Int64s:
    """Number the shape of each job, (jobs,): powers of two of its size, and of its limit in quarter hours."""
    wide = np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64)
    long = np.clip(np.ceil(np.log2(np.maximum(limit_s, 1) / 900.0)), 0, 15).astype(np.int64)
    return np.asarray(wide * 16 + long, np.int64)

"""Apply stopping rules to a pair table: find when each pair's successor is submitted."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.provisioning.protocol import PairTable
from traces.arrays import Int64s


def stopping_rows(pairs: PairTable, submit: NDArray[np.bool_]) -> Int64s:
    """Row at which each pair's successor is submitted: the first where `submit` (..., d) holds, else the pair's last.

    Returns (..., p) positions in the table's rows.
    """
    rows = np.arange(len(pairs.decision_s), dtype=np.int64)
    if not len(pairs):
        return np.empty((*submit.shape[:-1], 0), np.int64)
    candidates = np.where(submit, rows, np.iinfo(np.int64).max)
    first = np.minimum.reduceat(candidates, pairs.offset[:-1], axis=-1)
    return np.asarray(np.minimum(first, pairs.last), dtype=np.int64)


def following_rows(pairs: PairTable, submit: NDArray[np.bool_]) -> Int64s:
    """(..., d) row at which the successor is submitted by a policy that waits at that row and then follows `submit`.

    `submit` is (..., d). At a pair's exact end waiting is impossible, so that row maps to itself.
    """
    rows = np.arange(len(pairs.decision_s), dtype=np.int64)
    stops = np.asarray(submit, bool).copy()
    stops[..., pairs.last] = True
    candidates = np.where(stops, rows, np.iinfo(np.int64).max)
    first = np.minimum.accumulate(candidates[..., ::-1], axis=-1)[..., ::-1]  # at or after each row, within its pair
    after = np.concatenate([first[..., 1:], first[..., -1:]], axis=-1)
    after[..., pairs.last] = pairs.last
    return np.asarray(after, np.int64)

"""Mirage's state, against a count of jobs at each instant."""

from __future__ import annotations

import re

import numpy as np
import pytest

from models.provisioning.mirage.snapshots import CLUSTER_INPUTS, HISTORY, STEP_S, Histories, Snapshots, take_snapshots
from models.provisioning.protocol import PairTable
from tests.models.pair_tables import random_pairs
from traces.errors import InputError

PAIRS = random_pairs(1, starts=4)
FIRST_S = int(PAIRS.decision_s.min()) - HISTORY * STEP_S - 77


def jobs(seed: int = 0, count: int = 60) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    submit = FIRST_S + rng.integers(-5000, 60_000, count)
    wait = np.where(rng.random(count) < 0.4, 0, rng.integers(1, 9000, count))
    start = np.where(rng.random(count) < 0.1, -1, submit + wait)
    return {
        "submit_s": submit,
        "start_s": start,
        "end_s": start + rng.integers(1, 20_000, count),
        "nodes": rng.integers(1, 9, count),
        "limit_s": rng.integers(600, 172_800, count),
    }


def by_hand(made: dict[str, np.ndarray], now: int) -> list[float]:
    """One snapshot, job by job."""
    pending, running = [], []
    for submit, start, end, nodes, limit in zip(*made.values(), strict=True):
        if submit <= now and (start < 0 or start > now):
            pending.append((nodes, limit / 60, now - submit))
        elif 0 <= start <= now < end:
            running.append((nodes, limit / 60, start - submit, now - start))
    out = [0.0] * 34

    def five(place: int, values: list[float]) -> None:
        for i, q in enumerate((0, 0.25, 0.5, 0.75, 1)):
            out[place + i] = float(np.quantile(values, q)) if values else 0.0

    out[0], out[1] = len(pending), sum(one[0] for one in pending)
    five(2, [one[1] for one in pending])
    five(7, [one[2] for one in pending])
    out[17], out[18] = len(running), sum(one[0] for one in running)
    five(19, [one[1] for one in running])
    five(24, [one[2] for one in running])
    five(29, [one[3] for one in running])
    return out


@pytest.mark.parametrize("seed", [0, 1])
def test_a_snapshot_counts_every_job_once(seed: int) -> None:
    made = jobs(seed)
    found = take_snapshots(**made, first_s=FIRST_S, last_s=FIRST_S + 70_000)
    assert found.rows.shape == (117, CLUSTER_INPUTS)
    for place, row in enumerate(found.rows):
        np.testing.assert_allclose(row, by_hand(made, FIRST_S + place * STEP_S), rtol=1e-6, err_msg=str(place))
    assert found.rows[:, 0].max() > 2 and found.rows[:, 17].max() > 5


def histories(pairs: PairTable = PAIRS) -> Histories:
    count = int(pairs.decision_s.max() - FIRST_S) // STEP_S + 1
    rows = np.random.default_rng(0).normal(size=(count, CLUSTER_INPUTS)).astype(np.float32)
    return Histories.of_table(Snapshots(FIRST_S, rows).added_to(pairs))


def test_a_history_is_the_day_before_and_the_pair_as_it_is_now() -> None:
    made = histories()
    rows = np.array([0, 5, 33, len(PAIRS.decision_s) - 1])
    states = made.at(rows)
    assert states.shape == (4, 144, 42) and states.dtype == np.float32
    for state, row in zip(states, rows.tolist(), strict=True):
        last = (int(PAIRS.decision_s[row]) - FIRST_S) // STEP_S
        np.testing.assert_array_equal(state[:, :34], made.snapshots.rows[last - 143 : last + 1])
        pair = PAIRS.pair_of[row]
        limit, nodes = PAIRS.limit_s[pair] / 60, PAIRS.pair_nodes[pair]
        now = [limit, nodes, PAIRS.predecessor_start_s[pair] - PAIRS.submit_s[pair]]
        now += [PAIRS.decision_s[row] - PAIRS.predecessor_start_s[pair], limit, nodes, 0, 0]
        np.testing.assert_allclose(state[:, 34:], np.tile(np.asarray(now, np.float32), (144, 1)))


def test_each_snapshot_is_held_once() -> None:
    made = histories()
    held = made.snapshots.rows.nbytes + made.last.nbytes
    assert held < made.at(np.arange(len(PAIRS.decision_s))).nbytes / 20


def test_a_history_shorter_than_a_day_is_refused() -> None:
    made = histories()
    late = Snapshots(FIRST_S + 20 * STEP_S, made.snapshots.rows[20:])
    with pytest.raises(InputError, match=re.escape("needs 144 snapshots before it; there are")) as caught:
        late.added_to(PAIRS)
    assert "take later pairs" in str(caught.value) and "\n" not in str(caught.value)


def test_a_decision_after_the_last_snapshot_is_refused() -> None:
    made = histories()
    with pytest.raises(InputError, match="needs 144 snapshots"):
        Snapshots(FIRST_S, made.snapshots.rows[:-30]).added_to(PAIRS)

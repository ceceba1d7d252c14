"""The environment: Gymnasium's own checker, the rules of an episode, and the batch against one pair at a time."""

from __future__ import annotations

import warnings

import gymnasium
import numpy as np
import pytest

from features.dictionary import observation_table
from features.observe import FEATURES
from models.provisioning.batched_pairs import BatchedPairs, rewards
from models.provisioning.environment import SUBMIT, WAIT, ProvisioningEnv
from models.provisioning.pairs.injected import build_pairs
from models.provisioning.protocol import PairTable
from simulator.cluster import plain
from simulator.workload import Workload


def test_passes_gymnasiums_checker(report_table: PairTable) -> None:
    from gymnasium.utils.env_checker import check_env

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(ProvisioningEnv(report_table), skip_render_check=True)
    unexpected = [str(w.message) for w in caught if "infinity" not in str(w.message)]
    assert not unexpected


def documented() -> list[dict[str, str]]:
    """The rows of the table to which the docstring of the environment points."""
    header, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in observation_table()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_docstring_names_every_part_and_its_table_every_feature_in_order_with_its_unit() -> None:
    documentation = ProvisioningEnv.__doc__ or ""
    for part in ("Action space", "Observation space", "Rewards", "Starting state", "Episode end"):
        assert f"## {part}" in documentation
    assert observation_table.__module__ in documentation and observation_table.__name__ in documentation
    rows = documented()
    assert [row["Num"] for row in rows] == [str(i) for i in range(len(FEATURES))]
    assert tuple(row["Observation"].split(":")[0] for row in rows) == FEATURES
    unit_of_ending = {"node_h": "node-h", "nodes": "nodes", "jobs": "jobs", "h": "h"}
    for row in rows:
        name = row["Observation"].split(":")[0]
        unit = next((unit for ending, unit in unit_of_ending.items() if name.endswith(f"_{ending}")), "1")
        assert row["Unit"] == unit, name


def test_what_is_observed_in_a_replay_lies_in_the_documented_ranges() -> None:
    rng = np.random.default_rng(0)
    jobs = 600
    submit = np.sort(rng.integers(0, 20 * 86400, jobs)) + 1_600_000_000
    limit = rng.integers(1, 48, jobs) * 3600
    run = np.maximum((limit * rng.random(jobs)).astype(np.int64), 60)
    size = np.minimum(rng.geometric(0.4, jobs), 8)
    workload = Workload(np.arange(jobs), submit, size, run, limit, np.full(jobs, -1))
    starts = submit[0] + np.arange(3, 14) * 86400
    table = build_pairs(
        plain(workload, scheduler="mirage", capacity=40),
        submits_s=starts,
        pair_nodes=2,
        limit_s=24 * 3600,
        decision_s=3600,
    )
    bounds = {"limit": 24.0, "-limit": -24.0, "capacity": 40.0, "Inf": np.inf}
    assert table.observations[:, FEATURES.index("pending_jobs")].max() > 0, "nothing ever waited: nothing was tested"
    for i, row in enumerate(documented()):
        low, high = (bounds[row[end]] if row[end] in bounds else float(row[end]) for end in ("Min", "Max"))
        seen = table.observations[:, i]
        assert low <= seen.min() + 1e-6 and seen.max() <= high + 1e-6, (row, seen.min(), seen.max())


def test_the_same_seed_gives_the_same_trajectory(report_table: PairTable) -> None:
    def trajectory() -> list[object]:
        env = ProvisioningEnv(report_table, every=6)
        env.action_space.seed(4)
        out: list[object] = []
        for episode in range(5):
            observation, info = env.reset(seed=9 if episode == 0 else None)
            out += [observation.tolist(), info]
            done = False
            while not done:
                action = SUBMIT if env.action_space.sample() and env.action_space.sample() else WAIT
                observation, reward, done, _, info = env.step(np.int64(action))
                out += [observation.tolist(), reward, info]
        return out

    assert trajectory() == trajectory()


def test_waiting_to_the_end_is_reactive(report_table: PairTable) -> None:
    env = ProvisioningEnv(report_table, weight=2.0)
    for pair in (0, 7, len(report_table) - 1):
        env.reset(options={"pair": pair})
        steps, done = 0, False
        while not done:
            observation, reward, done, truncated, info = env.step(np.int64(WAIT))
            steps += 1
            assert not truncated
            assert done or reward == 0.0
        last = report_table.last[pair]
        gap = report_table.gap_h[last]
        assert steps == report_table.offset[pair + 1] - report_table.offset[pair]
        assert info == {"interruption_h": max(gap, 0.0), "overlap_h": max(-gap, 0.0)}
        assert reward == pytest.approx(-gap / 3.0)
        np.testing.assert_array_equal(observation, report_table.observations[last])


def test_the_reward_of_submitting_is_the_gap_of_that_row(report_table: PairTable) -> None:
    env = ProvisioningEnv(report_table, weight=0.5)
    env.reset(options={"pair": 3})
    for _ in range(10):
        env.step(np.int64(WAIT))
    _, reward, done, _, info = env.step(np.int64(SUBMIT))
    gap = report_table.gap_h[report_table.offset[3] + 10]
    assert done
    assert info["interruption_h"] - info["overlap_h"] == pytest.approx(gap)
    assert reward == pytest.approx(rewards(max(gap, 0), max(-gap, 0), 0.5))


def test_one_submits_naught_waits_and_an_hour_of_overlap_counts_as_one_of_interruption(
    report_table: PairTable,
) -> None:
    env = ProvisioningEnv(report_table)
    assert env.action_space == gymnasium.spaces.Discrete(2)
    for pair in range(len(report_table)):
        assert env.reset(options={"pair": pair})[1] == {"pair": pair}
        assert env.step(np.int64(0))[1:3] == (0.0, False)
        _, reward, done, _, _ = env.step(np.int64(1))
        assert done and reward == pytest.approx(-abs(report_table.gap_h[report_table.offset[pair] + 1]) / 2)
    assert report_table.gap_h[report_table.offset[:-1] + 1].min() < 0  # some overlap


@pytest.mark.parametrize("every", [1, 3, 7])
def test_batch_against_one_pair_at_a_time(report_table: PairTable, every: int) -> None:
    rng = np.random.default_rng(every)
    pairs = rng.integers(len(report_table), size=40)
    left = rng.integers(0, 200, size=40)
    batch = BatchedPairs(report_table, every)
    rows = batch.reset(pairs, left)
    expected: list[list[int]] = []
    for pair, more in zip(pairs, left, strict=True):
        decisions = np.arange(report_table.last[pair], report_table.offset[pair] - 1, -every)[::-1]
        expected.append(decisions[max(0, len(decisions) - 1 - more) :].tolist())
    for _ in range(12):
        assert rows.tolist() == [left_over[0] for left_over in expected]
        actions = rng.random(40) < 0.2
        after = batch.step(actions)
        for i, left_over in enumerate(expected):
            ends = bool(actions[i]) or len(left_over) == 1
            assert after.done[i] == ends
            gap = report_table.gap_h[left_over[0]] if ends else 0.0
            assert after.interruption_h[i] - after.overlap_h[i] == pytest.approx(gap)
            if not ends:
                left_over.pop(0)
        held = after.rows.copy()
        ended = int(after.done.sum())
        rows = batch.restart(after.done, rng.integers(len(report_table), size=ended), np.full(ended, 10_000))
        np.testing.assert_array_equal(after.rows, held)  # what was handed out is not changed behind the caller's back
        for i in np.flatnonzero(after.done).tolist():
            pair = int(np.searchsorted(report_table.offset, rows[i], side="right") - 1)
            expected[i] = np.arange(report_table.last[pair], report_table.offset[pair] - 1, -every)[::-1].tolist()


def test_refuses_what_cannot_be_stepped(report_table: PairTable) -> None:
    with pytest.raises(ValueError, match="an environment needs at least one"):
        BatchedPairs(report_table.take(np.zeros(len(report_table), bool)))
    with pytest.raises(ValueError, match="every=0"):
        BatchedPairs(report_table, 0)
    with pytest.raises(ValueError, match="positive"):
        ProvisioningEnv(report_table, weight=0.0)


def test_a_pair_that_is_not_in_the_table_and_an_unknown_render_mode_are_refused(report_table: PairTable) -> None:
    with pytest.raises(ValueError, match="render_mode 'human'"):
        ProvisioningEnv(report_table, render_mode="human")
    for pair in (-1, len(report_table)):
        with pytest.raises(ValueError, match=f"pair {pair}; the table has pairs 0 to {len(report_table) - 1}"):
            ProvisioningEnv(report_table).reset(options={"pair": pair})


def test_renders_what_is_observed_in_one_line_where_asked(report_table: PairTable) -> None:
    assert ProvisioningEnv(report_table).render() is None
    env = ProvisioningEnv(report_table, render_mode="ansi")
    env.reset(options={"pair": 2})
    env.step(np.int64(WAIT))
    seen = report_table.observations[report_table.offset[2] + 1]
    line = env.render() or ""
    assert f"{seen[FEATURES.index('remaining_h')]:.1f} h left" in line and "\n" not in line
    assert f"{seen[FEATURES.index('start_estimate_h')]:.1f} h by limits" in line


def test_reward_scale_moves_no_optimum() -> None:
    interruption, overlap = np.asarray([3.0, 0.0, 1.0]), np.asarray([0.0, 2.0, 0.0])
    for weight in (0.1, 1.0, 5.0):
        assert np.argmax(rewards(interruption, overlap, weight)) == np.argmin(interruption + weight * overlap)
        assert rewards(4.0, 4.0, weight) == pytest.approx(-4.0)

"""Chains of jobs in a record: by hand, and against the pair table where a chain has two links."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.observe import AT, FEATURES
from models.provisioning.chains import Player, _Chain, _Play, play_chains
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs
from models.provisioning.policies.reactive import Reactive
from models.provisioning.protocol import NONE
from models.study.chains import figures
from reports.text.chains import format_chains
from simulator.recorded.parameters import Parameters
from simulator.recorded.record import RecordedTrace
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.pairs.test_recorded import parameters, record_of, simple
from tests.simulator.recorded.cases import records
from traces.units import HOUR_S

DECISION_S = 250


def lead(seconds: float) -> Player:
    """Submits at the first decision that is no more than so many seconds before the end."""
    artifact, _ = Reactive().fit(random_pairs(0, 2), 0)
    return Player(artifact, seconds / HOUR_S + 1e-6)


def played(
    record: RecordedTrace, of: Predecessors, players: Sequence[Player], fitted: Parameters, **options: Any
) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: fitted)
        return play_chains(record, of, players, decision_s=DECISION_S, **options)


def quiet(others: int = 0) -> RecordedTrace:
    """P of user 0 has two of six nodes from 100 on, and `others` of user 1 are in use from 200 to 50,000."""
    columns = {
        "submit_s": (0, 40, 190, 60_000),
        "start_s": (0, 100, 200, 60_000),
        "end_s": (30, 5100, 50_000, 60_010),
        "size": (6, 2, max(others, 1), 1),
        "limit_s": (100, 5000, 90_000, 100),
        "user": (2, 0, 1, 2),
        "priority": (0, 0, 0, 0),
    }
    arrays = {name: np.array(column, np.int64) for name, column in columns.items()}
    return RecordedTrace(**arrays, job_key=["wide", "p", "other", "last"])


P = Predecessors(np.array([1]), np.array([NONE]))


def test_links_follow_each_other_where_nodes_are_free() -> None:
    """Links of 1,000 s, decisions every 250 s; a pass is a second after what it waits for."""
    reactive, early = played(
        quiet(), P, [lead(0), lead(500)], parameters(max_jobs=None), links=4, limit_s=1000
    ).tolist()
    assert reactive == [[100, 1101, 2102, 3103]]
    assert early == [[100, 601, 1102, 1603]]


def test_the_job_with_which_the_user_went_on_is_taken_out() -> None:
    """Were it not, it would have the two nodes first: its priority is higher, and it is submitted before the end."""
    found = played(simple(), Predecessors(np.array([1]), np.array([3])), [lead(0)], parameters(), links=2, limit_s=1000)
    assert found.tolist() == [[[100, 1101]]]


def test_a_link_waits_for_its_own_predecessor_where_nothing_else_is_free() -> None:
    """Four nodes are another's, and P's two are the chain's own."""
    early = played(quiet(others=4), P, [lead(500)], parameters(max_jobs=None), links=3, limit_s=1000)
    assert early.tolist() == [[[100, 1101, 2102]]]


def test_every_chain_has_links_of_its_own() -> None:
    """Two nodes are free: links of one node start beside their predecessor, those of three wait for it to end."""
    record = replace(quiet(), size=np.array([6, 1, 3, 1]))
    starts = {1: [100, 601, 1102], 2: [200, 1201, 2202]}
    for rows in ([1, 2], [2, 1]):
        chains = Predecessors(np.array(rows), np.array([NONE, NONE]))
        found = played(record, chains, [lead(500)], parameters(max_jobs=None), links=3, limit_s=1000)
        assert found.tolist() == [[starts[row] for row in rows]]


def test_links_that_run_count_against_their_users_limits() -> None:
    """Nodes are free, but a user may have one job only; with two the third link waits for the first."""
    one, two = (
        played(quiet(), P, [lead(1000)], parameters(max_jobs=most), links=4, limit_s=1000).tolist()[0][0]
        for most in (1, 2)
    )
    assert one == [100, 1101, 2102, 3103]
    assert two == [100, 351, 1101, 1352]


def test_the_oracle_decides_of_a_link_from_the_end_of_the_one_before() -> None:
    play = _Play(quiet(), P, 3, limit_s=1000, decision_s=DECISION_S, fit_span_s=None)

    def instants(player: Player, *start_s: int) -> list[int]:
        return list(play._instants(_Chain(player, 0, list(start_s), 0, iter(()))))

    assert instants(Player(None), 100) == [350, 600, 850, 1100]
    assert instants(Player(None), 100, 600) == [1100, 1350, 1600]
    assert instants(lead(0), 100, 600) == [850, 1100, 1350, 1600]


class Recorder:
    """Stands for an artifact: keeps what it was shown, and submits so many seconds before the end."""

    def __init__(self, lead_s: int, features: Sequence[str] = FEATURES) -> None:
        self.manifest = {"features": list(features)}
        self.shown: list[NDArray[np.float32]] = []
        self.lead_s = lead_s

    def decide(self, observations: NDArray[np.float32], setting: float | None) -> list[bool]:
        self.shown.append(observations[0].copy())
        return [observations[0, AT.remaining_h] * HOUR_S <= self.lead_s + 1]


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=records())
def test_two_links_are_a_pair(case: tuple[RecordedTrace, Any]) -> None:
    """Where the link is as long as P was, each decision sees what the pair's does, and S starts when it does there."""
    record, _ = case
    run_s = 600
    record = replace(
        record,
        end_s=np.where(record.ran, record.start_s + run_s, record.end_s),
        limit_s=np.where(record.ran, run_s, record.limit_s),
    )
    of = Predecessors(np.flatnonzero(record.ran)[:1], np.array([NONE]))
    if not len(of.row):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: parameters())
        table = build_recorded_pairs(record, of, decision_s=DECISION_S)
    for k in range(len(table.decision_s)):
        artifact: Any = Recorder(int(table.decision_s[-1] - table.decision_s[k]))
        starts = played(record, of, [Player(artifact)], parameters(), links=2, limit_s=run_s)
        assert starts[0, 0, 1] == table.successor_start_s[k]
    shown = np.array(artifact.shown)[-len(table.decision_s) :]
    assert shown.tobytes() == table.observations.tobytes()
    (oracle,) = played(record, of, [Player(None)], parameters(), links=2, limit_s=run_s)[0]
    gap = table.successor_start_s - (record.start_s[of.row[0]] + run_s)
    assert oracle[1] == table.successor_start_s[np.argmin(np.abs(gap))]


def test_the_observation_is_of_the_link_and_not_of_the_job_in_whose_place_it_is() -> None:
    artifact: Any = Recorder(0)
    record = replace(quiet(), end_s=np.array([30, 1100, 50_000, 60_010]))
    played(record, P, [Player(artifact)], parameters(max_jobs=None), links=3, limit_s=1000)
    first, second = artifact.shown[-8], artifact.shown[-4]
    assert first[AT.remaining_h] == pytest.approx(750 / HOUR_S)
    assert first[AT.running_jobs] == 2 and first[AT.release_1h_nodes] == 2
    waits = first[AT.predecessor_wait_h], second[AT.predecessor_wait_h]
    assert np.array(waits) * HOUR_S == pytest.approx([60, 1])  # the second was submitted at 1,100, and started at 1,101


def test_a_link_observes_its_users_place_and_who_was_submitted_a_second_before() -> None:
    """A job of the user's, submitted at 449, is ahead of the next link by its priority, and behind the other chain."""
    record = record_of(
        submit_s=(0, 40, 190, 449, 5000),
        start_s=(0, 100, 200, 5000, 6000),
        end_s=(30, 1100, 1200, 6000, 7000),
        size=(6, 2, 4, 4, 1),
        limit_s=(100, 1000, 1500, 700, 700),
        user=(2, 0, 1, 1, 2),
        priority=(0, 0, 0, 5000, 9000),
    )
    artifact: Any = Recorder(0)
    of = Predecessors(np.array([2, 4]), np.full(2, NONE))
    starts = played(record, of, [Player(artifact)], parameters(max_jobs=None), links=2, limit_s=1000)
    assert starts[0, 1].tolist() == [6000, 7001]
    first = artifact.shown[0]
    assert (first[AT.pending_jobs], first[AT.own_pending_jobs]) == (1, 1)
    assert first[[AT.predecessor_elapsed_h, AT.predecessor_wait_h]] * HOUR_S == pytest.approx([250, 10])


def test_a_link_that_never_starts_counts_as_started_after_ten_days() -> None:
    """One job a user, and another of the user's runs for twenty days."""
    record = record_of(
        submit_s=(0, 40, 50),
        start_s=(0, 100, 100),
        end_s=(30, 1100, 20 * 24 * HOUR_S),
        size=(6, 2, 1),
        limit_s=(100, 1000, 30 * 24 * HOUR_S),
        user=(2, 0, 0),
        priority=(0, 0, 0),
    )
    starts = played(record, P, [lead(0)], parameters(max_jobs=1), links=2, limit_s=1000)
    assert starts.tolist() == [[[100, 1100 + 10 * 24 * HOUR_S]]]


def test_figures_of_chains() -> None:
    """Two chains of three links of 10 h: one loses 2 h and overlaps by 1, the other loses nothing."""
    start_s = np.array([[[0, 12, 21], [100, 110, 120]]]) * HOUR_S
    found = figures(start_s, np.array([0, 8 * 24 * HOUR_S]), 10 * HOUR_S)
    assert (found["n"], found["blocks"], found["seeds"], found["indicative"]) == (2, 2, 1, True)
    assert found["interruption_h"] == pytest.approx(0.5) and found["overlap_h"] == pytest.approx(0.25)
    assert found["chain_interruption_h"] == pytest.approx(1.0) and found["chain_overlap_h"] == pytest.approx(0.5)
    assert found["at_work_share"] == pytest.approx((29 / 31 + 1) / 2)
    assert found["ci95"]["chain_interruption_h"] == [0.0, 2.0]
    rows = [
        {"policy": "reactive", "setting": 0.0, "world": "calibrated", "links": 3, "limit_h": 10.0, **found,
         "beyond_log": 1}
    ]  # fmt: skip
    text = format_chains(rows)
    assert "chains of 3 links of 10 h, world calibrated: n 2, 2 blocks" in text and "97%" in text
    assert text.endswith("1 of 2 chains continued after the last submission of the log")


def test_figures_of_chains_are_those_of_the_twin() -> None:
    """Two seeds, five chains, four links of 10 h that start at random: one number after the other."""
    start_h = 50 + np.cumsum(np.random.default_rng(0).integers(7, 14, (2, 5, 4)), axis=-1)
    found = figures(start_h * HOUR_S, np.arange(5), 10 * HOUR_S)
    lost, doubled, shares = [], [], []
    for chain in start_h.reshape(10, 4).tolist():
        gaps = [after - before - 10 for before, after in itertools.pairwise(chain)]
        lost.append(sum(gap for gap in gaps if gap > 0))
        doubled.append(-sum(gap for gap in gaps if gap < 0))
        shares.append(1 - lost[-1] / (chain[-1] + 10 - chain[0]))
    assert found["seeds"] == 2 and found["n"] == 5 and set(found["ci95"].values()) == {None}  # one block
    assert (found["chain_interruption_h"], found["chain_overlap_h"]) == pytest.approx((np.mean(lost), np.mean(doubled)))
    assert (found["interruption_h"], found["overlap_h"]) == pytest.approx((np.mean(lost) / 3, np.mean(doubled) / 3))
    assert found["at_work_share"] == pytest.approx(np.mean(shares))


def test_an_artifact_decides_for_a_link_as_for_a_pair() -> None:
    artifact: Artifact = lead(500).artifact  # type: ignore[assignment]
    seen = np.zeros((1, len(artifact.manifest["features"])), np.float32)
    seen[0, AT.remaining_h] = 0.1
    assert Player(artifact, 0.2).submits(seen[0]) and not Player(artifact, 0.05).submits(seen[0])
    assert not Player(None).submits(seen[0])

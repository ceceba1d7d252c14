"""Policies of timing on chains of links of one limit: by hand, and against the pair table for two links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.observe import AT, FEATURES
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import NONE
from models.provisioning.service.chain import Move, ServiceView
from models.provisioning.service.rules import SubmitAtEnd
from models.provisioning.service.timing import TimedPlayer, TimingOracle
from simulator.recorded.record import RecordedTrace
from tests.models.provisioning.pairs.test_recorded import built, parameters, record_of, simple
from tests.models.provisioning.service.test_play import ARTIFACT, RUN_S, P, cut_at, played, starts_of
from tests.simulator.recorded.cases import records
from traces.units import DAY_S, HOUR_S

LINK_S = 1000


def lead(seconds: float) -> TimedPlayer:
    """Submits at the first decision that is no more than so many seconds before the end."""
    return TimedPlayer(ARTIFACT, seconds / HOUR_S + 1e-6)


class Recorder:
    """Stands for an artifact: keeps what it was shown, and submits so many seconds before the end."""

    def __init__(self, lead_s: int, features: Sequence[str] = FEATURES) -> None:
        self.manifest = {"features": list(features)}
        self.shown: list[NDArray[np.float32]] = []
        self.lead_s = lead_s

    def decide(self, observations: NDArray[np.float32], setting: float) -> list[bool]:
        self.shown.append(observations[0].copy())
        return [observations[0, AT.remaining_h] * HOUR_S <= self.lead_s + 1]

    @property
    def player(self) -> TimedPlayer:
        """The player that asks it."""
        return TimedPlayer(cast(Artifact, self), 0.0)


@dataclass
class WatchedOracle:
    """The oracle, which keeps when it was asked about what link, by the number of links before."""

    asked: dict[int, list[int]] = field(default_factory=dict)

    def act(self, view: ServiceView) -> Move:
        move = TimingOracle().act(view)
        if move.again_s is None:
            self.asked.setdefault(len(view.chain.started), []).append(view.now_s)
        return move


def first_links(
    record: RecordedTrace, players: Sequence[Any], links: int, of: Predecessors = P, most_jobs: int | None = None
) -> list[list[list[int]]]:
    """Starts of the first links of each player's chains; a user may run `most_jobs`."""
    found = played(record, of, players, parameters(max_jobs=most_jobs), wanted_s=links * LINK_S)
    return [[starts_of(chain)[:links] for chain in of_player] for of_player in found]


def quiet(others: int = 0) -> RecordedTrace:
    """P of user 0 has two of six nodes from 100 to 1,100, and `others` of user 1 are in use from 200 to 50,000."""
    return record_of(
        submit_s=(0, 40, 190, 60_000),
        start_s=(0, 100, 200, 60_000),
        end_s=(30, 1100, 50_000, 60_010),
        size=(6, 2, max(others, 1), 1),
        limit_s=(100, LINK_S, 90_000, 100),
        user=(2, 0, 1, 2),
        priority=(0, 0, 0, 0),
    )


def test_links_follow_each_other_where_nodes_are_free() -> None:
    """Links of 1,000 s, decisions every 250 s; a pass is a second after what it waits for."""
    reactive, at_the_end, early = first_links(quiet(), [SubmitAtEnd(), lead(0), lead(500)], 4)
    assert reactive == at_the_end == [[100, 1101, 2102, 3103]]
    assert early == [[100, 601, 1102, 1603]]


def test_the_job_with_which_the_user_went_on_is_taken_out() -> None:
    """Were it not, it would have the two nodes first: its priority is higher, and it is submitted before the end."""
    of = Predecessors(np.array([1]), np.array([3]))
    assert first_links(simple(), [lead(0)], 2, of, most_jobs=2) == [[[100, 1101]]]


def test_a_link_waits_for_its_own_predecessor_where_nothing_else_is_free() -> None:
    """Four nodes are another's, and P's two are the chain's own."""
    assert first_links(quiet(others=4), [lead(500)], 3) == [[[100, 1101, 2102]]]


def test_every_chain_has_links_of_its_own() -> None:
    """Two nodes are free until P ends: links of one node start beside their predecessor, one of three waits for P."""
    record = replace(quiet(), size=np.array([6, 1, 3, 1]), limit_s=np.array([100, LINK_S, LINK_S, 100]))
    record = replace(record, end_s=np.array([30, 1100, 1200, 60_010]))
    starts = {1: [100, 601, 1102], 2: [200, 1101, 1602]}
    for rows in ([1, 2], [2, 1]):
        of = Predecessors(np.array(rows), np.array([NONE, NONE]))
        assert first_links(record, [lead(500)], 3, of) == [[starts[row] for row in rows]]


def test_links_that_run_count_against_their_users_limits() -> None:
    """Nodes are free, but a user may have one job only; with two the third link waits for the first."""
    one, two = (first_links(quiet(), [lead(1000)], 4, most_jobs=most)[0][0] for most in (1, 2))
    assert one == [100, 1101, 2102, 3103]
    assert two == [100, 351, 1101, 1352]


def test_the_oracle_decides_of_a_link_from_the_end_of_the_one_before() -> None:
    """From 700 on a wide job is ahead of every link, and runs when P ends. So the second link starts at 601."""
    record = record_of(
        submit_s=(0, 40, 190, 700, 60_000),
        start_s=(0, 100, 200, 1101, 60_000),
        end_s=(30, 1100, 50_000, 4101, 60_010),
        size=(6, 2, 2, 4, 1),
        limit_s=(100, LINK_S, 90_000, 3000, 100),
        user=(2, 0, 1, 1, 2),
        priority=(0, 0, 0, 9000, 0),
    )
    oracle = WatchedOracle()
    assert first_links(record, [oracle], 3) == [[[100, 601, 4102]]]
    assert (oracle.asked[1], oracle.asked[2]) == ([350, 600, 850, 1100], [1101, 1351, 1601])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=records())
def test_two_links_are_a_pair(case: tuple[RecordedTrace, Any]) -> None:
    """Where the link is as long as P was, each decision sees what the pair's does, and S starts when it does there."""
    record = cut_at(case[0], RUN_S)
    assume(bool(record.ran.any()))
    of = Predecessors(np.flatnonzero(record.ran)[:1], np.array([NONE]))
    table = built(record, parameters(), of=of)
    leads = [int(table.decision_s[-1] - now) for now in table.decision_s]
    recorders = [Recorder(seconds) for seconds in leads]
    players = [*(recorder.player for recorder in recorders), TimingOracle()]
    found = played(record, of, players, parameters(), wanted_s=2 * RUN_S)
    starts = [chain.started[1].start_s for (chain,) in found]
    assert starts[:-1] == table.successor_start_s.tolist()
    shown = np.array(recorders[-1].shown)[: len(leads) - 1]  # at the end it is not asked
    assert shown.tobytes() == table.observations[:-1].tobytes()
    gap = table.successor_start_s - (record.start_s[of.row[0]] + RUN_S)
    assert starts[-1] == table.successor_start_s[np.argmin(np.abs(gap))]


def test_the_observation_is_of_the_link_and_not_of_the_job_in_whose_place_it_is() -> None:
    recorder = Recorder(0)
    first_links(quiet(), [recorder.player], 3)
    first, second = recorder.shown[0], recorder.shown[3]  # three decisions a link before its end
    assert first[AT.remaining_h] == second[AT.remaining_h] == pytest.approx(750 / HOUR_S)
    assert first[AT.running_jobs] == second[AT.running_jobs] == 2
    assert first[AT.release_1h_nodes] == second[AT.release_1h_nodes] == 2
    waits = first[AT.predecessor_wait_h], second[AT.predecessor_wait_h]
    assert np.array(waits) * HOUR_S == pytest.approx([60, 1])  # the second was submitted at 1,100, and started at 1,101


def test_a_link_observes_its_users_place_and_who_was_submitted_a_second_before() -> None:
    """A job of the user's, submitted at 449, is ahead of the next link by its priority, and behind the other chain."""
    record = record_of(
        submit_s=(0, 40, 190, 449, 5000),
        start_s=(0, 100, 200, 5000, 6000),
        end_s=(30, 1100, 1200, 6000, 7000),
        size=(6, 2, 4, 4, 1),
        limit_s=(100, LINK_S, LINK_S, 700, LINK_S),
        user=(2, 0, 1, 1, 2),
        priority=(0, 0, 0, 5000, 9000),
    )
    recorder = Recorder(0)
    of = Predecessors(np.array([2, 4]), np.full(2, NONE))
    assert first_links(record, [recorder.player], 2, of)[0][1] == [6000, 7001]
    first = recorder.shown[0]
    assert (first[AT.pending_jobs], first[AT.own_pending_jobs]) == (1, 1)
    assert first[[AT.predecessor_elapsed_h, AT.predecessor_wait_h]] * HOUR_S == pytest.approx([250, 10])


def test_a_link_that_never_starts_counts_as_started_after_ten_days() -> None:
    """One job a user, and another of the user's runs for twenty days."""
    record = record_of(
        submit_s=(0, 40, 50),
        start_s=(0, 100, 100),
        end_s=(30, 1100, 20 * DAY_S),
        size=(6, 2, 1),
        limit_s=(100, LINK_S, 30 * DAY_S),
        user=(2, 0, 0),
        priority=(0, 0, 0),
    )
    assert first_links(record, [lead(0)], 2, most_jobs=1) == [[[100, 1100 + 10 * DAY_S]]]


def test_an_artifact_decides_for_a_link_as_for_a_pair_at_the_players_setting() -> None:
    """By hand: at the end, and 250 s and 500 s before it."""
    players = [TimedPlayer(ARTIFACT, setting) for setting in (0.05, 0.1, 0.2)]
    found = [starts[0][1] for starts in first_links(quiet(), players, 2)]
    assert found == [1101, 851, 601]


def test_a_player_of_one_limit_submits_links_of_that_limit() -> None:
    """The user's own, or the shortest or longest that a link may ask for; each submits 500 s before the end."""
    players = [TimedPlayer(ARTIFACT, 0.2, limit=limit) for limit in ("own", "shortest", "longest")]
    found = played(quiet(), P, players, parameters(), wanted_s=2 * LINK_S, limits_s=(300, 400, 3000, 5000))
    assert [chain.started[1].limit_s for (chain,) in found] == [LINK_S, 300, 5000]

"""Chains under policies that look ahead: what their futures are, by hand and against those of the pair table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from features.futures.summary import SEEN_AHEAD
from models.provisioning.comparison.outcomes import stopping_rows
from models.provisioning.futures.recorded import play_futures
from models.provisioning.futures.table import starts_ahead, with_futures
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.provisioning.protocol import NONE, no_pairs
from models.provisioning.service.chain import ServiceChain
from models.provisioning.service.play import Service, play_services
from models.provisioning.service.timing import TimedPlayer
from simulator.recorded.parameters import Parameters
from simulator.recorded.record import RecordedTrace
from tests.models.provisioning.futures.generated import DAY, FIRST_S, HOUR, busy
from tests.models.provisioning.pairs.test_recorded import parameters
from tests.models.provisioning.service.test_play import P, played
from tests.models.provisioning.service.test_timing import LINK_S, Recorder, quiet
from traces.units import HOUR_S

SETTINGS = (0.6, 1.0, 1.4)
RULE = SimulateAhead().fit(no_pairs(), 0)[0]
# Seconds from the start of each chain to those of its later links, by setting. Commit 884b93f5 played them by other
# code: one branch of the record for each link, without a queue of links.
PLAYED = {
    0.6: [
        [86402, 144881, 194061], [71122, 129601, 172802], [58481, 110083, 160473], [71122, 114323, 157524],
        [58481, 101682, 144883], [58481, 101682, 144883],
    ],
    1.4: [
        [43201, 86402, 129603], [71122, 114323, 157524], [43201, 86402, 129603], [43201, 86402, 129603],
        [43201, 86402, 129603], [43201, 86402, 129603],
    ],
}  # fmt: skip


def cut_after(days: int, record: RecordedTrace) -> Predecessors:
    """Six jobs that ran for their limit of 12 h, submitted after so many days."""
    row = np.flatnonzero((record.limit_s == 12 * HOUR) & (record.submit_s > FIRST_S + days * DAY))[:6]
    return Predecessors(row, np.full(len(row), NONE))


def chains_of(record: RecordedTrace, of: Predecessors, settings: tuple[float, ...], links: int) -> list[Any]:
    """Chains of links of 12 h under simulate-ahead at each setting."""
    players = [TimedPlayer(RULE, setting) for setting in settings]
    return play_services(record, of, players, Service(links * 12 * HOUR, 0, 600, (12 * HOUR,)))


@pytest.fixture
def four_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = Parameters(0, 4, 3, None, 500.0, 1.0, 1.0, 0)
    monkeypatch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: fitted)


@pytest.mark.usefixtures("four_nodes")
def test_two_links_are_a_pair_of_the_table() -> None:
    """At every setting the second link starts when the pair's successor does, decided on the same futures."""
    record = busy(seed=5)
    of = cut_after(28, record)
    table = build_recorded_pairs(record, of, decision_s=600)
    table = with_futures(table, starts_ahead(table, record, of))
    wanted = table.successor_start_s[stopping_rows(table, RULE.decisions(table.inputs_of(RULE), SETTINGS))]
    found = [[chain.started[1].start_s for chain in chains] for chains in chains_of(record, of, SETTINGS, 2)]
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted, axis=0)) > 1, "settings that differ in nothing show nothing"


@pytest.mark.usefixtures("four_nodes")
def test_chains_of_four_links_start_as_they_did() -> None:
    record = busy(seed=5)

    def later_s(chain: ServiceChain) -> list[int]:
        first, *later = (link.start_s for link in chain.started[:4])
        return [start_s - first for start_s in later]

    found = chains_of(record, cut_after(25, record), tuple(PLAYED), 4)
    assert [[later_s(chain) for chain in chains] for chains in found] == list(PLAYED.values())


@pytest.mark.parametrize(("others", "is_free"), [(0, True), (4, False)])
def test_links_that_run_run_to_their_limits_in_futures(others: int, is_free: bool) -> None:
    """Where a chain's own link holds the only nodes, the next one starts when it ends; else at once."""
    recorder = Recorder(0, SEEN_AHEAD)
    played(quiet(others), P, [recorder.player], parameters(max_jobs=None), wanted_s=3 * LINK_S)
    assert len(recorder.shown) >= 6
    for shown in recorder.shown:
        seen = dict(zip(SEEN_AHEAD, shown.tolist(), strict=True))
        left_s = round(seen["remaining_h"] * HOUR_S)
        waits_s = {round(seen[name] * HOUR_S) for name in ("ahead_wait_p10_h", "ahead_wait_p90_h")}
        assert waits_s <= ({0, 1} if is_free else {left_s + 1})  # 0 where it carries over from the last decision


def test_a_chains_own_job_runs_to_the_links_limit_if_it_arrives_again(monkeypatch: pytest.MonkeyPatch) -> None:
    run_s: set[int] = set()

    def watched(workspace: Any, *arguments: Any, **more: Any) -> None:
        run_s.add(int(workspace.room.drawn_s[P.row[0]]))
        play_futures(workspace, *arguments, **more)

    monkeypatch.setattr("models.provisioning.service.links.play_futures", watched)
    played(quiet(), P, [Recorder(0, SEEN_AHEAD).player], parameters(max_jobs=None), wanted_s=2 * LINK_S)
    assert run_s == {LINK_S}

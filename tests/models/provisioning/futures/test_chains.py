"""Chains under policies that look ahead: what their futures are, by hand and against those of the pair table."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from agent.artifact import Artifact
from features.futures.summary import SEEN_AHEAD
from models.provisioning.chains import Player, play_chains
from models.provisioning.comparison.outcomes import stopping_rows
from models.provisioning.futures.recorded import play_futures
from models.provisioning.futures.table import starts_ahead, with_futures
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs
from models.provisioning.policies.simulate_ahead import SimulateAhead
from models.provisioning.protocol import NONE
from simulator.recorded.parameters import Parameters
from tests.models.generated import queue_table
from tests.models.provisioning.futures.generated import DAY, FIRST_S, HOUR, busy
from tests.models.provisioning.pairs.test_recorded import parameters
from tests.models.provisioning.test_chains import P, Recorder, played, quiet
from traces.units import HOUR_S

SETTINGS = (0.6, 1.0, 1.4)


def test_two_links_are_a_pair_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every setting the second link starts when the pair's successor does, decided on the same futures."""
    monkeypatch.setattr(
        recorded_pairs, "infer_parameters", lambda record, until_s: Parameters(0, 4, 3, None, 500.0, 1.0, 1.0, 0)
    )
    record = busy(seed=5)
    row = np.flatnonzero((record.limit_s == 12 * HOUR) & (record.submit_s > FIRST_S + 28 * DAY))[:6]
    chains = Predecessors(row, np.full(len(row), NONE))
    table = build_recorded_pairs(record, chains, decision_s=600)
    table = with_futures(table, starts_ahead(table, record, chains))
    rule = SimulateAhead().fit(queue_table(), 0)[0]
    wanted = table.successor_start_s[stopping_rows(table, rule.decisions(table.inputs_of(rule), SETTINGS))]
    players = [Player(rule, setting) for setting in SETTINGS]
    found = play_chains(record, chains, players, links=2, limit_s=12 * HOUR, decision_s=600)
    np.testing.assert_array_equal(found[:, :, 1], wanted)
    assert len(np.unique(wanted, axis=0)) > 1, "settings that differ in nothing show nothing"


@pytest.mark.parametrize(("others", "is_free"), [(0, True), (4, False)])
def test_links_that_run_run_to_their_limits_in_futures(others: int, is_free: bool) -> None:
    """Where a chain's own link holds the only nodes, the next one starts when it ends; else at once."""
    recorder: Any = Recorder(0, SEEN_AHEAD)
    found = played(
        quiet(others), P, [Player(cast(Artifact, recorder))], parameters(max_jobs=None), links=3, limit_s=1000
    )
    assert found.shape == (1, 1, 3) and len(recorder.shown) >= 4
    for shown in recorder.shown:
        seen = dict(zip(SEEN_AHEAD, shown.tolist(), strict=True))
        left_s = round(seen["remaining_h"] * HOUR_S)
        waits_s = {round(seen[name] * HOUR_S) for name in ("ahead_wait_p10_h", "ahead_wait_p90_h")}
        assert waits_s <= ({0, 1} if is_free else {left_s + 1})  # 0 where it carries over from the last decision


def test_a_chains_own_job_runs_to_the_links_limit_if_it_arrives_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_s: set[int] = set()

    def watched(workspace: Any, *arguments: Any) -> None:
        run_s.add(int(workspace.room.drawn_s[P.row[0]]))
        play_futures(workspace, *arguments)

    monkeypatch.setattr("models.provisioning.chains.play_futures", watched)
    recorder: Any = Recorder(0, SEEN_AHEAD)
    played(quiet(), P, [Player(cast(Artifact, recorder))], parameters(max_jobs=None), links=2, limit_s=1000)
    assert run_s == {1000}

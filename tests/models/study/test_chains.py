"""A study's chains: at which settings they are played, and what a row says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.provisioning import chains as recorded_chains
from models.provisioning.chains import Player
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import NONE, PairTable
from models.provisioning.scenario import CALIBRATED
from models.study import chains
from models.study.chains import chain_rows
from models.study.cluster import Study
from models.study.windows import Window
from simulator.recorded.parameters import LEAST_FIT_S
from tests.models.pair_tables import artifact, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from tests.models.provisioning.pairs.test_recorded import simple
from tests.models.toy_study import toy_study
from traces.errors import InputError
from traces.units import HOUR_S

REPORT, SELECT = Window(0, 900), Window(0, 40 * 24 * HOUR_S)
# Starts of the two links of one chain: one fit each of early, two of late, the oracle.
STARTS_H = [[[0, 4]], [[0, 5]], [[0, 7]], [[0, 6]]]


class Asked(Study):
    """Its pairs of the select window are handed in."""

    select: PairTable

    def pairs(self, window: Window) -> PairTable:
        assert window == SELECT
        return self.select


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """One predecessor, submitted at 40; links of 6 h."""
    toy = toy_study(tmp_path)
    scenario = replace(toy.scenario, world=CALIBRATED, limit_s=6 * HOUR_S, from_s=0)
    made = Asked(toy.data, toy.settings, scenario, toy.workload)
    # gaps an hour before the end and at it: what is submitted early costs 1, at the end 2; the last is not known yet
    select = pairs_of([1, 1, 1], [6] * 3, [[-1.0, 2.0], [-1.0, 2.0], [-8000.0, 8000.0]], [None] * 3)
    object.__setattr__(made, "select", select)
    of = Predecessors(np.array([1]), np.array([NONE]))
    monkeypatch.setattr(chains, "predecessors_in", lambda *_: (simple(), of))
    return made


def test_rows_of_the_policies_and_of_the_oracle(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log ends at 900 s: every chain goes on after it. Settings are those of the pairs whose outcome was known."""
    asked: list[tuple[Sequence[Player], dict[str, Any]]] = []

    def played(record: object, of: object, players: Sequence[Player], **options: Any) -> Any:
        asked.append((players, options))
        return np.array(STARTS_H) * HOUR_S

    monkeypatch.setattr(recorded_chains, "play_chains", played)
    leads = artifact("constant-lead", (0.0, 1.0), 0.0, policy="constant-lead")
    fits = [*trained("early", leads), *trained("late", leads, leads)]
    early, late, oracle = chain_rows(study, fits, REPORT, SELECT, 2)
    assert [(row["policy"], row["setting"], row["seeds"]) for row in (early, late, oracle)] == [
        ("early", 1.0, 1),
        ("late", 1.0, 2),
        ("oracle", None, 1),
    ]
    assert (early["interruption_h"], early["overlap_h"]) == (0.0, 2.0)
    assert (late["interruption_h"], late["overlap_h"]) == (0.5, 0.5)
    assert (oracle["interruption_h"], oracle["overlap_h"], oracle["at_work_share"]) == (0.0, 0.0, 1.0)
    assert {(row["world"], row["links"], row["limit_h"], row["beyond_log"]) for row in (early, late, oracle)} == {
        (CALIBRATED, 2, 6.0, 1)
    }
    ((players, options),) = asked
    assert [player.setting for player in players] == [1.0, 1.0, 1.0, None] and players[-1].artifact is None
    assert options == {"links": 2, "limit_s": 6 * HOUR_S, "decision_s": 600, "fit_span_s": LEAST_FIT_S}
    without = chain_rows(replace_scenario(study, from_s=None), fits, REPORT, None, 2)
    assert [row["setting"] for row in without] == [0.0, 0.0, None] and asked[-1][1]["fit_span_s"] is None


def test_chains_that_end_within_the_log_are_not_beyond_it(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two chains, with two seeds: one seed plays the first of them beyond the log, the other the second."""
    of = Predecessors(np.array([1, 2]), np.full(2, NONE))
    monkeypatch.setattr(chains, "predecessors_in", lambda *_: (simple(), of))
    starts_s = np.array([[[0, 901], [0, 900]], [[0, 900], [0, 901]], [[0, 900], [0, 900]]])
    monkeypatch.setattr(recorded_chains, "play_chains", lambda *_, **__: starts_s)
    learned, oracle = chain_rows(study, trained("learned", artifact(), artifact()), REPORT, None, 2)
    assert (learned["beyond_log"], oracle["beyond_log"]) == (2, 0)


def test_without_a_predecessor_no_chain_begins(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    none = np.zeros(0, np.int64)
    monkeypatch.setattr(chains, "predecessors_in", lambda *_: (simple(), Predecessors(none, none)))
    with pytest.raises(InputError, match="no chain begins between 1970-01-01"):
        chain_rows(study, trained("reactive", artifact()), REPORT, None, 2)


def replace_scenario(study: Asked, **changes: Any) -> Asked:
    return replace(study, scenario=replace(study.scenario, **changes))

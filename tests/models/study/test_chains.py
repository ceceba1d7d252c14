"""A study's chains: at which settings they are played, where they begin, and what a row says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.provisioning.futures.injected import Owners
from models.provisioning.pairs.recorded import Predecessors
from models.provisioning.protocol import NONE, PairTable
from models.provisioning.scenario import CALIBRATED
from models.provisioning.service import play as service_play
from models.provisioning.service.chain import Link, ServiceChain
from models.provisioning.service.names import ALWAYS, HAND_OVER, LONGEST, PLAN, SHORTEST
from models.provisioning.service.play import Service
from models.provisioning.service.timing import TimedPlayer
from models.study import chains
from models.study.chains import chosen_settings, service_rows, timing_artifacts
from models.study.cluster import Study
from models.study.comparisons import select_window
from models.study.windows import Window
from simulator.recorded.parameters import LEAST_FIT_S
from tests.models.pair_tables import artifact, trained
from tests.models.provisioning.comparison.test_groups import pairs_of
from tests.models.provisioning.pairs.test_recorded import record_of, simple
from tests.models.toy_study import toy_study
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S

REPORT, SELECT = Window(50, 900), Window(0, 40 * DAY_S)
SERVICE = Service(12 * HOUR_S, 0, 600, (60, 100, 5000))
LEADS = artifact("constant-lead", (0.0, 1.0), 0.0, policy="constant-lead")
OF_TIMING = {"reactive", *timing_artifacts([], []), "early", "late"}


class Asked(Study):
    """Its pairs of the select window are handed in."""

    select: PairTable

    def pairs(self, window: Window) -> PairTable:
        assert window == SELECT
        return self.select


class PlayedChains:
    """Stands for `play_services`: keeps what it was asked, and lets a chain have links of 6 h from the given hours."""

    def __init__(self, starts_h: Callable[[int, int], list[float]]) -> None:
        self.starts_h = starts_h  # by the positions of the player and of the chain
        self.players: list[Any] = []

    def __call__(
        self, record: object, of: Predecessors, players: Sequence[Any], service: Service, fit_span_s: int | None
    ) -> list[list[ServiceChain]]:
        self.players, self.service, self.fit_span_s, self.rows = list(players), service, fit_span_s, of.row.tolist()
        return [[self._chain(place, number) for number in range(len(of.row))] for place in range(len(players))]

    def _chain(self, place: int, number: int) -> ServiceChain:
        starts_s = [round(start_h * HOUR_S) for start_h in self.starts_h(place, number)]
        return ServiceChain(number, 6 * HOUR_S, [Link(6 * HOUR_S, at, at, at + 6 * HOUR_S) for at in starts_s])


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """One predecessor, submitted at 40."""
    toy = toy_study(tmp_path)
    scenario = replace(toy.scenario, world=CALIBRATED, limit_s=6 * HOUR_S, from_s=0)
    made = Asked(toy.data, toy.settings, scenario, toy.workload)
    # gaps an hour before the end and at it: what is submitted early costs 1, at the end 2; the last is not known yet
    gaps_h = [[-1.0, 2.0], [-1.0, 2.0], [9000.0, 8000.0]]
    object.__setattr__(made, "select", pairs_of([1, 1, 1], [6] * 3, gaps_h, [None] * 3))
    begin_at(monkeypatch, Predecessors(np.array([1]), np.array([NONE])))
    return made


def begin_at(monkeypatch: pytest.MonkeyPatch, of: Predecessors, record: Any = None) -> None:
    monkeypatch.setattr(chains, "predecessors_in", lambda *_: (simple() if record is None else record, of))


def plays(monkeypatch: pytest.MonkeyPatch, starts_h: Callable[[int, int], list[float]]) -> PlayedChains:
    fake = PlayedChains(starts_h)
    monkeypatch.setattr(service_play, "play_services", fake)
    return fake


def replace_scenario(study: Asked, **changes: Any) -> Asked:
    made = replace(study, scenario=replace(study.scenario, **changes))
    object.__setattr__(made, "select", study.select)
    return made


def test_timing_policies_play_at_the_setting_of_least_cost_on_the_select_window(
    study: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each seed and each rule; players of one limit at start-estimate's, or at twice the estimate.

    The log ends at 900 s, chains after it.
    """
    played = plays(monkeypatch, lambda place, number: [0, 7])
    fits = [*trained("early", LEADS), *trained("late", LEADS, LEADS)]
    rows = {row["policy"]: row for row in service_rows(study, [PLAN], fits, REPORT, SELECT, SERVICE, 1.0)}
    assert rows.keys() == {*ALWAYS, PLAN, "early", "late"}
    assert (rows["early"]["setting"], rows["late"]["setting"]) == (1.0, 1.0)
    assert (rows["early"]["seeds"], rows["late"]["seeds"]) == (1, 2)
    estimate = rows["start-estimate"]["setting"]
    assert estimate == chosen_settings(study, timing_artifacts([], []), SELECT, 1.0)["start-estimate"] != 1.0
    assert [rows[name]["setting"] for name in (SHORTEST, LONGEST, HAND_OVER)] == [estimate, estimate, 2.0]
    assert {name for name, row in rows.items() if row["setting"] is None} == {
        "reactive", "singleton", "two-ahead", "all-at-once", "oracle", PLAN,
    }  # fmt: skip
    timed = [player for player in played.players if isinstance(player, TimedPlayer)]
    assert [(player.limit, player.hands_over) for player in timed[:3]] == [
        (SHORTEST, False), (LONGEST, False), (LONGEST, True),
    ]  # fmt: skip
    assert [player.setting for player in timed[:3]] == [estimate, estimate, 2.0]
    assert [(player.artifact, player.setting) for player in timed[-3:]] == [(LEADS, 1.0)] * 3
    assert {row["difference_to_best_timing"]["policy"] for row in rows.values()} <= OF_TIMING
    assert {(row["world"], row["wanted_h"], row["beyond_log"], row["n"]) for row in rows.values()} == {
        (CALIBRATED, 12.0, 1, 1)
    }


def test_without_a_select_window_or_known_pairs_settings_are_the_artifacts_own(
    study: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = plays(monkeypatch, lambda place, number: [0, 7])
    fits = trained("late", LEADS, LEADS)
    without = service_rows(replace_scenario(study, from_s=None), [], fits, REPORT, None, SERVICE, 1.0)
    settings = {row["policy"]: row["setting"] for row in without}
    assert (settings["late"], settings["start-estimate"], settings[LONGEST]) == (0.0, 1.0, 1.0)
    assert played.fit_span_s is None
    unknown = pairs_of([1], [6], [[8000.0, 9000.0]], [None])
    object.__setattr__(study, "select", unknown)
    early = artifact("constant-lead", (0.0, 1.0), 1.0, policy="constant-lead")
    assert chosen_settings(study, {"early": [early], "late": [LEADS]}, SELECT, 1.0) == {"early": 1.0, "late": 0.0}
    service_rows(study, [], fits, REPORT, None, SERVICE, 1.0)
    assert played.fit_span_s == LEAST_FIT_S


@pytest.mark.parametrize(("weight", "setting"), [(1.0, 1.0), (1.9, 1.0), (2.1, 0.0)])
def test_overlap_counts_in_the_choice_as_it_does_in_the_table(study: Asked, weight: float, setting: float) -> None:
    """Early: an hour of overlap; at the end: two hours of interruption."""
    assert chosen_settings(study, {"late": [LEADS, LEADS]}, SELECT, weight) == {"late": setting}


def test_seeds_with_different_settings_are_refused(study: Asked) -> None:
    other = artifact("constant-lead", (0.0, 2.0), 0.0, policy="constant-lead")
    with pytest.raises(InputError, match="policy 'late': its artifacts declare different settings"):
        chosen_settings(study, {"late": [LEADS, other]}, SELECT, 1.0)


def test_the_select_window_lasts_from_what_is_known_to_the_report() -> None:
    assert select_window(20, Window(50, 900, 300)) == Window(20, 50, 300)
    assert select_window(50, Window(50, 900, 300)) is None


def test_a_chain_beyond_the_log_counts_once_with_several_seeds(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one seed both chains continue after the log's last submission at 900 s, with the other only the first."""
    begin_at(monkeypatch, Predecessors(np.array([1, 2]), np.full(2, NONE)))
    study = replace_scenario(study, every_s=1)
    first = len(ALWAYS)  # of the two seeds, which play last
    late = {(first, 0): 901, (first, 1): 901, (first + 1, 0): 901}
    played = plays(monkeypatch, lambda place, number: [0, late.get((place, number), 900) / HOUR_S])
    rows = service_rows(study, [], trained("learned", LEADS, LEADS), REPORT, None, SERVICE, 1.0)
    assert played.players[-2].artifact is played.players[-1].artifact is LEADS and len(played.players) == first + 2
    beyond = {row["policy"]: row["beyond_log"] for row in rows}
    assert beyond["learned"] == 2 and set(beyond.values()) == {0, 2}


def test_chains_begin_at_least_so_far_apart(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submissions at 0, 90, 100 and 150 s; after the one at 0 the next may be at 100, then none before 200."""
    record = record_of(
        submit_s=(0, 90, 100, 150),
        start_s=(0, 90, 100, 150),
        end_s=(60, 150, 160, 210),
        size=(1, 1, 1, 1),
        limit_s=(60, 60, 60, 60),
        user=(0, 1, 2, 3),
        priority=(0, 0, 0, 0),
    )
    begin_at(monkeypatch, Predecessors(np.arange(4), np.full(4, NONE)), record)
    played = plays(monkeypatch, lambda place, number: [0, 7])
    service_rows(replace_scenario(study, every_s=100), [], [], REPORT, None, SERVICE, 1.0)
    assert played.rows == [0, 2]


def test_limits_above_those_recorded_before_the_window_are_left_out(
    study: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 50 s limits of 100 and of 1,000 s were requested; 9,000 s only after it."""
    played = plays(monkeypatch, lambda place, number: [0, 7])
    (row, *_) = service_rows(study, [], [], REPORT, None, SERVICE, 1.0)
    assert played.service.limits_s == (60, 100) and row["limits_h"] == [60 / HOUR_S, 100 / HOUR_S]


PLAIN_REPORT = Window(3 * DAY_S, 6 * DAY_S, 600)


def plain_study(root: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> Study:
    """Links of one and of two nodes, in a busy pool of twelve, under EASY."""
    toy = toy_study(root)
    owners = Owners(toy.workload.job_id % 7, toy.workload.job_id % 3)
    monkeypatch.setattr(chains, "owners_of", lambda *_: owners)
    scenario = replace(toy.scenario, **{"scheduler": "easy", "pair_nodes": (1, 2), "capacity": 12, **changes})
    return replace(toy, scenario=scenario)


def test_in_the_plain_world_chains_begin_where_pairs_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each day and each size; a reactive chain with one handover loses what the reactive pair does."""
    study = plain_study(tmp_path, monkeypatch)
    service = Service(8 * HOUR_S, 0, 600, (2 * HOUR_S, 4 * HOUR_S, 30 * HOUR_S))
    rows = {row["policy"]: row for row in service_rows(study, [PLAN], [], PLAIN_REPORT, None, service, 1.0)}
    assert rows.keys() == {*ALWAYS, PLAN}
    pairs = study.pairs(PLAIN_REPORT)
    assert {(row["n"], row["world"], row["scheduler"], row["unfinished"]) for row in rows.values()} == {
        (len(pairs), "plain", "easy", 0)
    }
    assert rows[PLAN]["limits_h"] == [2.0, 4.0]  # no job of the trace asks for more than 12 h
    at_end = pairs.successor_start_s[pairs.offset[1:] - 1] - pairs.predecessor_end_s
    assert rows["reactive"]["lost_h_per_day"] == pytest.approx(at_end.mean() / HOUR_S * DAY_S / service.wanted_s)
    assert rows["reactive"]["lost_h_per_day"] > rows["oracle"]["lost_h_per_day"]


@pytest.mark.parametrize("report", [Window(0, 2 * DAY_S, 600), Window(9 * DAY_S, 10 * DAY_S, 600)])
def test_in_the_plain_world_no_chain_begins_where_no_pair_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, report: Window
) -> None:
    """The trace has twelve days; the first two and the last five support no pairs."""
    with pytest.raises(InputError, match=r"no chain begins in 1970-01-.*; give a wider window$"):
        service_rows(plain_study(tmp_path, monkeypatch), [], [], report, None, SERVICE, 1.0)


def test_a_policy_that_looks_ahead_is_refused_under_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit of it, and the rule asked for by name; also without a select window."""
    study = plain_study(tmp_path, monkeypatch, scheduler="slurm")
    looking = trained("simulate-ahead", artifact("constant-lead", (0.0,), 0.0, policy="simulate-ahead"))
    for policies, fits in (([], looking), (["simulate-ahead"], [])):
        with pytest.raises(InputError, match="policy 'simulate-ahead' looks at simulated futures"):
            service_rows(study, policies, fits, PLAIN_REPORT, None, SERVICE, 1.0)


def test_without_a_predecessor_no_chain_begins(study: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    none = np.zeros(0, np.int64)
    begin_at(monkeypatch, Predecessors(none, none))
    with pytest.raises(InputError, match=r"no chain begins in 1970-01-01.*as TIMEOUT at a limit .*--world plain"):
        service_rows(study, [], trained("reactive", artifact()), REPORT, None, SERVICE, 1.0)

"""`baton plan`: from a small generated dump, and from a Slurm in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from agent import slurm_time
from agent.chains.bound import links_ahead
from agent.eyes import Eyes
from agent.slurm import commands
from models.provisioning.service import moment
from models.provisioning.service.moment import LinkWaits, live_waits
from models.study import chains as study_chains
from tests.agent.fake_slurm import FakeSlurm
from tests.agent.programs import programs
from tests.agent.test_futures import INSTANTS, told_slurm
from tests.models.provisioning.futures.generated import busy
from tests.pipelines.conftest import Baton
from traces.units import HOUR_S

SCRIPT = "#!/bin/sh\n#SBATCH --nodes=4\n#SBATCH --time=6:00:00\nsrun train\n"
AT = ("--cluster", "lab", "--at", "2023-12-08T12:00")
PLANS = ["script's limit, reactive", "best limit, one ahead", "recommended"]


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.sh"
    path.write_text(SCRIPT)
    return path


def test_three_plans_at_an_instant_of_a_log(lab: Baton, script: Path) -> None:
    found = lab("plan", script, *AT, "--json").json
    assert (found["cluster"], found["live"], found["at_utc"]) == ("lab", False, "2023-12-08T12:00")
    assert (found["nodes"], found["work_h"], found["restart_cost_s"], found["futures"]) == (4, 240, 600, 16)
    assert found["limits_s"] == [HOUR_S * hours for hours in (2, 4, 6, 8, 12, 24)], "24 h: the longest in the log"
    own, one, best = found["plans"]
    assert [row["plan"] for row in found["plans"]] == PLANS
    assert (own["limit_s"], own["ahead"]) == (6 * HOUR_S, 0)
    assert 0 < best["lost_h_per_day"] <= one["lost_h_per_day"] < own["lost_h_per_day"], "jobs wait there"
    for row in found["plans"]:
        assert row["ci95"][0] <= row["lost_h_per_day"] <= row["ci95"][1]
        assert row["first_start_range_s"][0] <= row["first_start_s"] <= row["first_start_range_s"][1]
        assert row["node_hours"] >= 4 * 240
    assert found["recommendation"].startswith(f"ask for {best['limit_s'] // HOUR_S} h links, ")
    assert found["timeline"][0]["submit_s"] == found["at_s"] and len(found["timeline"]) == 5
    text = lab("plan", script, *AT, "--restart-cost", "90").out
    assert "UTC: 10 d of work, a restart costs 1.5 min; 16 simulated futures" in text
    text = lab("plan", script, *AT).out
    assert all(name in text for name in (*PLANS, found["recommendation"], "SIGTERM", "95 %"))
    assert text.count("|") == 2 * 5 and max(map(len, text.splitlines())) <= 140


def test_what_is_asked_for_counts(lab: Baton, script: Path) -> None:
    plain = lab("plan", script, *AT, "--json").json
    end = lab("plan", script, "--cluster", "lab", "--json").json
    assert end["at_utc"] > "2023-12-12" and end["plans"] != plain["plans"]
    wide = lab("plan", script, *AT, "--nodes", "3", "--json").json
    assert wide["nodes"] == 3 and wide["plans"][0]["node_hours"] < plain["plans"][0]["node_hours"]
    fixed = lab("plan", script, *AT, "--ask", "fixed", "--json").json
    assert fixed["limits_s"] == [6 * HOUR_S] and "only one limit is compared: 6 h" in fixed["notes"]
    costly = lab("plan", script, *AT, "--restart-cost", "2h", "--work", "120", "--json").json
    assert costly["limits_s"] == [HOUR_S * hours for hours in (6, 8, 12, 24)], "none below three restart costs"
    assert costly["work_h"] == 120 and costly["plans"][0]["lost_h_per_day"] > plain["plans"][0]["lost_h_per_day"]
    script.write_text(SCRIPT.replace("#SBATCH --time=6:00:00", "#SBATCH --signal=USR1@300"))
    given = lab("plan", script, *AT, "--limits", "3h,12h", "--json").json
    assert given["limits_s"] == [3 * HOUR_S, 12 * HOUR_S] and [row["plan"] for row in given["plans"]] == PLANS[1:]
    assert not any("SIGTERM" in note for note in given["notes"])
    script.write_text(SCRIPT.replace("#SBATCH --nodes=4", "#SBATCH --nodes=4 --partition=p0,p1"))
    both = lab("plan", script, *AT, "--json").json
    assert both["partition"] == "p0,p1" and both["limits_s"] == plain["limits_s"]


def waits_of(by_nodes: dict[int, tuple[tuple[float, ...], tuple[float, ...]]]) -> Any:
    """Waits in hours, by the nodes of a link: of a limit of 2 h, and of longer ones."""

    def waits_at(folder: object, cluster: str, now_s: int, nodes: int, limits_s: Sequence[int], user: str) -> LinkWaits:
        hours = {limit_s: by_nodes[nodes][limit_s > 2 * HOUR_S] for limit_s in limits_s}
        return LinkWaits(now_s, {limit_s: (np.array(of) * HOUR_S).astype(int) for limit_s, of in hours.items()}, 16, 0)

    return waits_at


def test_links_that_can_live_with_less_are_compared(lab: Baton, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 h fit in both futures, more only in the first."""
    monkeypatch.setattr(study_chains, "waits_at", waits_of({4: ((1, 1), (1, 90))}))
    rigid = lab("plan", script, *AT, "--json").json
    assert (rigid["time_min"], rigid["least_nodes"], rigid["scaling"]) == (False, 4, 1.0)
    assert all(row["least_s"] == row["limit_s"] and row["nodes"] == 4 for row in rigid["plans"])
    found = lab("plan", script, *AT, "--time-min", "on", "--json").json
    own, *_, best = found["plans"]
    assert found["time_min"] and own == rigid["plans"][0]
    assert (best["least_s"], best["limit_s"]) == (2 * HOUR_S, 24 * HOUR_S)
    assert best["lost_h_per_day"] < rigid["plans"][-1]["lost_h_per_day"]
    assert found["recommendation"].startswith("ask for 24 h links that can live with 2 h, keep ")
    assert " 2-24 h " in lab("plan", script, *AT, "--time-min", "on").out


def test_what_the_script_says_of_limits_and_nodes_counts(
    lab: Baton, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for an agent: no link gets less than --time-min, and of a range of nodes the least counts."""
    monkeypatch.setattr(study_chains, "waits_at", waits_of({2: ((1, 1), (1, 90))}))
    text = SCRIPT.replace("--nodes=4", "--nodes=2-8")
    script.write_text(text.replace("--time=6:00:00", "--time=6:00:00 --time-min=3:00:00"))
    found = lab("plan", script, *AT, "--json").json
    assert (found["nodes"], found["least_nodes"], found["time_min"]) == (2, 2, True)
    assert found["limits_s"] == [HOUR_S * hours for hours in (3, 4, 6, 8, 12, 24)]
    assert [row["least_s"] for row in found["plans"]] == [3 * HOUR_S, 24 * HOUR_S, 24 * HOUR_S], "all wait alike"
    rigid = lab("plan", script, *AT, "--time-min", "off", "--json").json
    assert not rigid["time_min"] and rigid["plans"][0] == found["plans"][0], "a reactive link is the script's"
    assert rigid["limits_s"][0] == 2 * HOUR_S and rigid["plans"][-1]["least_s"] == rigid["plans"][-1]["limit_s"]
    fixed = lab("plan", script, *AT, "--ask", "fixed", "--json").json
    assert not fixed["time_min"] and fixed["limits_s"] == [6 * HOUR_S]
    script.write_text(text.replace("--time=6:00:00", "--time=6:00:00 --time-min=7:00:00"))
    refused = lab("plan", script, *AT)
    assert refused.code == 2 and "--time-min is 7 h, above --time, 6 h" in refused.err


def test_links_of_fewer_nodes_are_compared(lab: Baton, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links of three or four nodes wait for days, of two not at all. A quarter of the nodes would lose more."""
    days, nothing = ((400, 400),) * 2, ((0, 0),) * 2
    monkeypatch.setattr(study_chains, "waits_at", waits_of({4: days, 3: days, 2: nothing, 1: nothing}))
    found = lab("plan", script, *AT, "--least-nodes", "1", "--json").json
    own, *_, best = found["plans"]
    assert (found["nodes"], found["least_nodes"], own["nodes"], best["nodes"]) == (4, 1, 4, 2)
    work_h = (24 - 1 / 6) / 2
    assert best["lost_h_per_day"] == pytest.approx(24 * (1 / 6 + work_h) / work_h)
    assert best["node_hours"] == pytest.approx(4 * 240, rel=0.01), "twice as long, with half of the nodes"
    assert found["recommendation"].startswith("ask for 24 h links on 2 of 4 nodes, ")
    slow = lab("plan", script, *AT, "--least-nodes", "1", "--scaling", "0.1", "--json").json
    assert slow["scaling"] == 0.1 and slow["plans"][-1]["lost_h_per_day"] < best["lost_h_per_day"] / 5
    text = lab("plan", script, *AT, "--least-nodes", "3").out
    assert "ask for 24 h links, " in text, "three nodes are no better than four"


def test_bad_input_is_refused_in_one_line(lab: Baton, script: Path) -> None:
    unlimited = script.with_name("unlimited.sh")
    unlimited.write_text(SCRIPT.replace("#SBATCH --time=6:00:00", ""))
    wrong = {"array.sh": "--array=1-3", "nodes.sh": "--nodes=all", "time.sh": "--time=6h", "least.sh": "--time-min=1h"}
    for name, line in wrong.items():
        script.with_name(name).write_text(f"{SCRIPT.replace('srun train', f'#SBATCH {line}')}\n")
    for path, arguments, said in (
        (unlimited, AT, "no time limit: set #SBATCH --time there, or give --limits"),
        (unlimited, (*AT, "--ask", "fixed"), "no time limit: set #SBATCH --time there\n"),
        (script.with_name("array.sh"), AT, "array.sh: --array is not allowed in a chain: a link is exactly one job"),
        (script.with_name("nodes.sh"), AT, "nodes.sh: --nodes is 'all'; write a number such as 2, or 2-4"),
        (script.with_name("time.sh"), AT, "sbatch option --time is '6h'; write 30 (minutes), 12:00:00 or 1-12:00:00"),
        (script.with_name("least.sh"), AT, "sbatch option --time-min is '1h'; write 30 (minutes)"),
        (script.with_name("none.sh"), AT, "No such file"),
        (script, (*AT, "--restart-cost", "9h"), "give at least 27 h (three restart costs) and at most 24"),
        (script, (*AT, "--limits", "100h"), "give at least 30 min (three restart costs) and at most 24"),
        (script, (*AT, "--limits", "2h", "--ask", "fixed"), "--limits with --ask fixed"),
        (script, (*AT, "--ask", "never"), "allowed: any or fixed"),
        (script, (*AT, "--time-min", "maybe"), "--time-min is 'maybe'; allowed: on or off"),
        (script, (*AT, "--time-min", "on", "--ask", "fixed"), "--time-min on with --ask fixed"),
        (script, (*AT, "--least-nodes", "5"), "--least-nodes is 5; allowed: 1 to 4, the nodes of a link"),
        (script, (*AT, "--least-nodes", "3", "--nodes", "2"), "--least-nodes is 3; allowed: 1 to 2"),
        (script, (*AT, "--qos-choice", "short"), "--qos-choice with --cluster: a log does not show what a QOS"),
        (script, (*AT, "--partition", "cpu"), "unknown partition 'cpu' of cluster 'lab'; known: p0, p1"),
        (script, (*AT, "--nodes", "11"), "the widest job of cluster 'lab' before then has 4"),
        (script, ("--cluster", "nowhere"), "unknown cluster 'nowhere'"),
        (script, ("--cluster", "sample"), "sample"),
        (script, ("--cluster", "lab", "--at", "2030-01-01"), "after the last submission"),
        (script, ("--cluster", "lab", "--at", "2020-01-01"), "no earlier job with a time limit"),
        (script, ("--at", "2023-12-08"), "give its --cluster"),
    ):
        refused = lab("plan", path, *arguments)
        assert refused.code == 2 and said in refused.err and refused.out == "", (arguments, refused.err)
        assert refused.err.count("\n") == 1


def test_links_are_queued_within_the_bounds(tmp_path: Path) -> None:
    bound = tmp_path / "agent.toml"
    assert [links_ahead(submitted, bound) for submitted in (1, 2, 3, 100)] == [1, 1, 2, 2]
    for text in ("most_queued_a_chain = 1\n", "most_queued_a_user = 1\n", "nonsense"):
        bound.write_text(text)
        assert links_ahead(100, bound) == 1


def test_a_log_without_submissions_is_refused(lab: Baton, script: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.psv"
    path.write_text("JobID|User|Start|End|State|NNodes\n1|anna|2026-03-01T00:00:00|2026-03-01T01:00:00|COMPLETED|1\n")
    assert lab("ingest", path, "--cluster", "bare", "--timezone", "UTC").code == 0
    refused = lab("plan", script, "--cluster", "bare")
    assert refused.code == 2 and "does not record submissions" in refused.err


@pytest.mark.slow
def test_the_slurm_of_this_machine_is_planned_on(
    baton: Baton, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four nodes, held for two hours by one job; its user's next job waits for them too."""
    script.write_text(SCRIPT.replace("--nodes=4", "--nodes=2"))
    slurm = FakeSlurm(nodes=4, now_s=int(time.time()))
    with programs(slurm, tmp_path / "bin") as running:
        monkeypatch.setenv("PATH", str(running.folder), prepend=os.pathsep)
        with running.lock:
            slurm.submit("job", user="u1", nodes=4)
            slurm.submit("job", user="u2", nodes=4)
        asked = ("--time-min", "on", "--least-nodes", "1", "--scaling", "0.01", "--json")
        found, nodes = baton("plan", script, *asked).json, list[int]()
        assert (found["live"], found["cluster"], found["nodes"]) == (True, None, 2)
        assert [row["plan"] for row in found["plans"]] == PLANS
        assert found["plans"][0]["first_start_s"] > found["at_s"], "the nodes are held"
        assert found["futures"] == 0 and found["limits_s"] == [6 * HOUR_S], "as an agent plans without accounting"

        def counting(eyes: Eyes, limits_s: Sequence[int], count: int) -> LinkWaits:
            nodes.append(count)
            return live_waits(eyes, limits_s, count)

        monkeypatch.setattr(moment, "live_waits", counting)
        again = baton("plan", script, *asked).json  # perhaps a second later, with waits a second shorter
        for key in ("limit_s", "nodes", "ahead"):
            assert [row[key] for row in again["plans"]] == [row[key] for row in found["plans"]]
        assert nodes == [2], "nor for fewer nodes"
        assert {row["ci95"] for row in found["plans"]} == {None}
        assert any("no interval" in note for note in found["notes"])
        assert "now, on this machine's Slurm" in baton("plan", script).out
        refused = baton("plan", script, "--partition", "cpu")
        assert refused.code == 2 and "unknown partition cpu; known: gpu" in refused.err and refused.out == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    away = baton("plan", script)
    assert away.code == 1 and away.out == "" and "this machine's Slurm cannot be asked" in away.err


def test_a_slurm_that_shows_all_is_planned_on_with_fewer_nodes(
    baton: Baton, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of four nodes are free sooner, and work almost as fast."""
    record, now_s = busy(seed=3), INSTANTS[0]
    monkeypatch.setattr(commands, "Commands", lambda: told_slurm(record, now_s))
    monkeypatch.setattr(slurm_time, "SlurmTime", lambda _: SimpleNamespace(now_s=lambda: now_s))
    asked = ("plan", script, "--user", "newcomer", "--limits", "1h,6h", "--json")
    found = baton(*asked, "--time-min", "on", "--least-nodes", "1", "--scaling", "0.1").json
    plain = baton(*asked).json
    assert (found["futures"], found["at_s"], found["nodes"]) == (16, now_s, 4)
    assert {row["nodes"] for row in plain["plans"]} == {4} and found["plans"][0] == plain["plans"][0]
    for row, own in zip(found["plans"][1:], plain["plans"][1:], strict=True):
        assert row["nodes"] == 2 and row["first_start_s"] < own["first_start_s"], "by futures of two nodes"
        assert row["lost_h_per_day"] < own["lost_h_per_day"] and row["node_hours"] < own["node_hours"]


def test_links_of_another_qos_are_compared(baton: Baton, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under QOS short a link of four nodes goes before all others, and asks for two hours at most."""
    record, now_s, qos = busy(seed=3), INSTANTS[0], ["short|||||02:00:00|80|||", "narrow||||||90|||node=2"]
    config = {"PriorityType": "priority/multifactor", "PriorityWeightQOS": "100000"}
    monkeypatch.setattr(commands, "Commands", lambda: told_slurm(record, now_s, config=config, more_qos=qos))
    monkeypatch.setattr(slurm_time, "SlurmTime", lambda _: SimpleNamespace(now_s=lambda: now_s))
    asked = ("plan", script, "--user", "newcomer", "--limits", "1h,2h,6h", "--qos-choice")
    plain = baton(*asked[:-1], "--json").json
    found = baton(*asked, "short", "--json").json
    assert (plain["qos_choice"], found["qos_choice"], found["plans"][0]) == ([], ["short"], plain["plans"][0])
    assert {row["qos"] for row in plain["plans"]} == {""} and plain["plans"][-1]["limit_s"] == 6 * HOUR_S
    for row, own in zip(found["plans"][1:], plain["plans"][1:], strict=True):
        assert (row["qos"], row["limit_s"]) == ("short", 2 * HOUR_S) and row["first_start_s"] < own["first_start_s"]
        assert row["lost_h_per_day"] < own["lost_h_per_day"]
    assert found["recommendation"].startswith("ask for 2 h links under QOS short, ")
    assert any("short (priority +88889, at most 2 h, usage x1)" in note for note in found["notes"])
    text = baton(*asked, "short,narrow").out
    assert " QOS " in text and " short " in text and " script's " in text and " QOS " not in baton(*asked[:-1]).out
    assert "note: QOS narrow is left out: it allows no link of 4 nodes" in text
    late = baton(*asked[:-3], "--limits", "6h", "--qos-choice", "short", "--json").json
    assert late["plans"] == baton(*asked[:-3], "--limits", "6h", "--json").json["plans"]
    assert any(note.startswith("QOS short is left out: no limit of 6 h can be planned") for note in late["notes"])
    unknown = baton(*asked, "top")
    assert unknown.code == 2 and "user newcomer may not use QOS top; allowed: normal, short, narrow" in unknown.err

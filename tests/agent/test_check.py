"""What `check` finds on clusters that show all, that hide, and that cannot run the job."""

from __future__ import annotations

from typing import Any

import pytest

from agent.check import Finding, check_agent
from agent.sight import SlurmRequest
from agent.slurm.commands import SlurmError
from tests.agent.replayed_slurm import ReplayedSlurm
from tests.agent.test_sight import ME, NOW, OTHER, cluster

HOUR = 3600


def found(
    request: SlurmRequest | None = None, late_s: int = 0, trial: Any = None, **fields: Any
) -> dict[str, list[str]]:
    """Texts by `level subject`."""
    slurm = cluster(ME, OTHER, **fields)
    findings = check_agent(slurm, request or SlurmRequest(2, 8 * HOUR, "me"), now_s=lambda: NOW + late_s, trial=trial)
    texts: dict[str, list[str]] = {}
    for one in findings:
        assert isinstance(one, Finding) and "\n" not in one.text
        texts.setdefault(f"{one.level} {one.subject}", []).append(one.text)
    return texts


def test_a_cluster_that_shows_everything() -> None:
    texts = found(trial=lambda: None)
    assert {key.split()[0] for key in texts} == {"good"}
    assert texts["good hidden"] == ["nothing: every feature is observed"]
    assert texts["good slurm"] == ["version 22.05.8; the agent is tested on 22.05, 24.11, 26.05"]
    assert texts["good clock"] == ["this host is 0 s ahead of the controller"]
    assert texts["good partition"] == ["gpu: 6 of 6 nodes in service"]
    assert texts["good limits"] == ["none on the user's jobs and nodes"]
    assert texts["good submission"] == ["Slurm would accept the job"]
    assert texts["good calls"] == ["2 per look and at most 8 more every 60 min; this check made 8"]


@pytest.mark.parametrize(("fields", "line"), [
    ({"broken": frozenset({"sacctmgr"})}, "sacctmgr: refuses in this test: headroom_jobs = 1000, headroom_nodes = "
                                          "capacity_nodes, headroom_wait_h = 0"),
    ({"nodes": {}}, "sinfo shows no nodes (slurm.conf: PrivateData): usable_nodes = capacity_nodes"),
    ({"denied": frozenset({"sinfo"})}, "sinfo shows no nodes (slurm.conf: PrivateData): usable_nodes = capacity_nodes"),
])  # fmt: skip
def test_what_is_hidden_is_named_with_what_stands_in(fields: dict[str, Any], line: str) -> None:
    assert found(**fields)["warning hidden"] == [line]


def test_an_accounting_that_is_not_there_and_queues_that_are_private() -> None:
    texts = found(broken=frozenset({"sacct"}))
    assert texts["warning accounting"] == ["sacct: refuses in this test; past jobs are known after a day of observing"]
    assert "recent_wait_mean_h = 0" in texts["warning hidden"][0] and "limit_use_mean = 1" in texts["warning hidden"][0]
    (private,) = (text for text in found(private="me")["warning hidden"] if "PrivateData" in text)
    assert "no policy can decide without" in private and "pending_jobs" in private and "safe rule" in private


def test_partitions_that_are_hidden_leave_the_safe_rule() -> None:
    texts = found(denied=frozenset({"sinfo", "scontrol partition"}), trial=lambda: None)
    why = "partitions are not shown (slurm.conf: PrivateData)"
    assert texts["warning partition"] == [f"{why}; the request cannot be compared with its partition"]
    assert not any(key.startswith("problem") for key in texts)
    (hidden,) = texts["warning hidden"]
    assert hidden.startswith(f"{why}: no policy can decide without free_nodes") and "capacity_nodes" in hidden


def test_rows_that_cannot_be_parsed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    squeue = ReplayedSlurm._squeue
    monkeypatch.setattr(
        ReplayedSlurm, "_squeue", lambda self, argv: squeue(self, argv).replace(str(NOW - 3 * HOUR), "soon")
    )
    assert "1 row of squeue could not be parsed and are left out" in found()["warning queue"]


def test_clocks_and_versions_that_differ() -> None:
    assert found(late_s=61)["warning clock"] == ["this host is 61 s ahead of the controller"]
    assert found(late_s=-61)["warning clock"] == ["this host is 61 s behind the controller"]
    (text,) = found(config={"SLURM_VERSION": "25.11.1"})["warning slurm"]
    assert text == "version 25.11.1; the agent has been tested only on 22.05, 24.11, 26.05"


def test_requests_that_cannot_run() -> None:
    assert found(SlurmRequest(7, HOUR, "me"))["problem partition"] == ["requested 7 nodes; gpu has only 6"]
    assert found(SlurmRequest(1, 200 * HOUR, "me"))["problem partition"] == [
        "requested time limit 200 h; gpu allows at most 168 h"
    ]
    states = {f"n{k}": "down" for k in range(2, 7)} | {"n1": "idle"}
    assert found(SlurmRequest(4, HOUR, "me"), nodes=states)["warning partition"] == [
        "requested 4 nodes; gpu has only 1 in service"
    ]

    def refused() -> None:
        raise SlurmError("refused", "sbatch", "Invalid qos specification")

    assert found(trial=refused)["problem submission"] == ["Invalid qos specification"]


def test_a_request_for_several_partitions_may_take_the_longest_limit_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol = ReplayedSlurm._scontrol
    long, longer = "MaxTime=7-00:00:00 Nodes=n[5-8]", "MaxTime=14-00:00:00 Nodes=n[5-8]"
    monkeypatch.setattr(ReplayedSlurm, "_scontrol", lambda self, argv: scontrol(self, argv).replace(long, longer))
    assert "problem partition" not in found(SlurmRequest(1, 200 * HOUR, "me", "gpu,wide"))
    assert found(SlurmRequest(1, 400 * HOUR, "me", "gpu,wide"))["problem partition"] == [
        "requested time limit 400 h; gpu,wide allows at most 336 h"
    ]


def test_limits_that_keep_two_links_from_running_together() -> None:
    limits: tuple[dict[str, Any], ...] = ({"max_jobs": "1"}, {"max_tres": "node=3"})
    for fields in limits:
        assert "can never start while its predecessor runs" in found(**fields)["warning limits"][0]
    assert "warning limits" not in found(max_tres="node=4")


@pytest.mark.parametrize(("broken", "level"), [((), "good"), (("sacct",), "warning")])
def test_a_plan_needs_futures(broken: tuple[str, ...], level: str) -> None:
    slurm = cluster(ME, OTHER, broken=frozenset(broken))
    asked = SlurmRequest(2, 8 * HOUR, "me")
    findings = check_agent(slurm, asked, now_s=lambda: NOW, limits=lambda longest_s: (HOUR, longest_s))
    texts = {one.subject: (one.level, one.text) for one in findings}
    assert texts["plan"] == ("good", "a link may ask for 1 h, 168 h")
    assert texts["futures"][0] == level and ("asks for the script's limit" in texts["futures"][1]) == bool(broken)


def test_a_slurm_that_does_not_answer() -> None:
    assert found(broken=frozenset({"squeue"})) == {"problem slurm": ["cannot be read: squeue: refuses in this test"]}

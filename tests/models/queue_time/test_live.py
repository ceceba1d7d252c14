"""A live Slurm in place of the log's end: the same cluster, seen both ways, gives the same observation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.eyes import Eyes
from agent.memory import Memory
from agent.sight import ClusterObservation, SlurmContext, sight_of
from agent.sight import SlurmRequest as Asked
from agent.slurm.accounting import AccountingRecords, PastJob
from agent.slurm.commands import Commands
from agent.slurm.limits import UserLimits
from agent.slurm.nodes import SinfoStates
from agent.slurm.queue import JOBS, Queue, SqueueJob
from agent.slurm.settings import Partition
from features.submission.index import FEATURES
from features.submission.log import SubmissionLog
from models.queue_time.ask import WaitRequest, answer, observed_of
from models.queue_time.live import look_at_slurm, seen_live
from models.queue_time.make import make
from models.queue_time.stored import Stored
from simulator.recorded.record import NEVER
from tests.features.submission.logs import generated_log
from tests.models.queue_time.test_ask import LAB
from traces.errors import InputError, WorkError

NODES = frozenset(f"n{number}" for number in range(10))
LIMIT_S = 2 * 86_400
PARTITIONS = {name: Partition(name, NODES, 1, "", LIMIT_S, name == "p0", {}) for name in ("p0", "p1")}
REQUEST = WaitRequest(2, 6 * 3600, "p0", "u1", "a1", "normal")


@pytest.fixture(scope="module")
def log() -> SubmissionLog:
    return generated_log(7, jobs=500, days=9)


@pytest.fixture(scope="module")
def stored(log: SubmissionLog) -> Stored:
    return make(log, LAB, {"made_from": "", "code": "", "champion": None})


def jobs_at(log: SubmissionLog, now_s: int) -> tuple[tuple[SqueueJob, ...], tuple[PastJob, ...]]:
    """Who pends and runs at that instant, as squeue says it, and who came before, as sacct does."""
    record, alive, past = log.record, [], []
    columns = (record.submit_s, record.start_s, record.end_s, record.size, record.limit_s)
    for k, (submit, start, end, size, limit) in enumerate(zip(*(one.tolist() for one in columns), strict=True)):
        has_begun, is_over = start < now_s and start != NEVER, end < now_s
        user, account, partition, qos = (log.names[name][k] for name in ("user", "account", "partition", "qos"))
        state = "RUNNING" if has_begun else "PENDING"
        nodes = ",".join(sorted(NODES)[:size])
        if not is_over:
            columns_of = (size, limit, submit, start if has_begun else None, None, 0, 0, "", nodes if has_begun else "")
            alive.append(SqueueJob(str(k + 1), "job", user, account, partition, qos, state, "Priority", *columns_of))
        begun, over = start if has_begun else None, end if is_over else None
        past.append(PastJob(str(k + 1), user, partition, size, limit, submit, begun, over))
    return tuple(alive), tuple(past)


def sight(log: SubmissionLog, stored: Stored, hides: bool = False) -> tuple[ClusterObservation, tuple[SqueueJob, ...]]:
    m = stored.manifest
    jobs, past = jobs_at(log, m["now_s"])
    if hides:
        jobs, past = (tuple(one for one in many if one.user == "u1") for many in (jobs, past))  # type: ignore[assignment]
    memory = Memory()
    memory.learn(AccountingRecords(past))
    limits = UserLimits(m["user_max_jobs"], m["user_max_nodes"])
    context = SlurmContext(PARTITIONS, SinfoStates(dict.fromkeys(NODES, "mixed")), None, limits)
    queue = Queue(m["now_s"], jobs, frozenset({JOBS} if hides else ()))
    memory.follow(queue)
    return sight_of(queue, context, memory, None, Asked(2, 6 * 3600, "u1", "p0")), jobs


def test_a_cluster_seen_live_is_the_one_that_the_log_ends_with(log: SubmissionLog, stored: Stored) -> None:
    seen, jobs = sight(log, stored)
    assert any(job.state == "PENDING" for job in jobs) and any(job.state == "RUNNING" for job in jobs)
    live = seen_live(stored, seen, jobs, "u1", "p0")
    (found,), (expected,) = observed_of(live, REQUEST), observed_of(stored, REQUEST)
    differing = {
        name: (a, b)
        for name, a, b in zip(FEATURES, found.tolist(), expected.tolist(), strict=True)
        if not np.isclose(a, b, rtol=1e-4, atol=1e-4)
    }
    assert not differing
    result, from_log = answer(live, REQUEST), answer(stored, REQUEST)
    assert result["quantiles_s"] == pytest.approx(from_log["quantiles_s"])
    assert any(note.startswith("live: the outcomes of earlier jobs are from the log") for note in result["notes"])
    assert not any("partition" in one["change"] for one in result["sooner"]), "one look sees the queue of one partition"


def test_what_is_hidden_keeps_its_usual_value_and_is_said(log: SubmissionLog, stored: Stored) -> None:
    seen, jobs = sight(log, stored, hides=True)
    live = seen_live(stored, seen, jobs, "u1", "p0")
    (found,) = observed_of(live, REQUEST)
    result = dict(zip(FEATURES, found.tolist(), strict=True))
    usual = dict(zip(FEATURES, stored.typical.tolist(), strict=True))
    for name in ("pending_jobs", "ahead_jobs", "everybody_running_jobs", "partition_pending_size"):
        assert result[name] == usual[name]
    own = [job for job in jobs if job.state == "RUNNING"]
    assert result["user_running_jobs"] == len(own)
    assert any("usual values: other users' jobs are not shown" in note for note in answer(live, REQUEST)["notes"])


def test_more_nodes_than_the_partition_has_are_never_given(log: SubmissionLog, stored: Stored) -> None:
    seen, jobs = sight(log, stored)
    live = seen_live(stored, seen, jobs, "u1", "p0")
    assert answer(live, replace(REQUEST, nodes=11))["never"] == "never: it asks for 11 nodes, and the cluster has 10"


def test_no_slurm_and_no_nodes_are_refused(stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkError, match="--live: squeue"):
        look_at_slurm(Commands({"PATH": str(tmp_path)}), stored, Asked(1, 3600, "u1"))
    of_cpus = replace(stored, manifest={**stored.manifest, "unit": "CPUs"})
    with pytest.raises(InputError, match="--live counts nodes, but the log of cluster 'lab' counts CPUs"):
        look_at_slurm(Commands({"PATH": str(tmp_path)}), of_cpus, Asked(1, 3600, "u1"))
    with pytest.raises(ValueError, match="call look before"):
        Eyes(Commands({}), Asked(1, 3600, "u1")).newcomer()

"""Slurm's JSON, read where its text cannot be: both say the same of one cluster, and a wrong shape is none."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.eyes import Eyes
from agent.sight import SlurmRequest
from agent.slurm import json_form
from agent.slurm.commands import SlurmError
from agent.slurm.json_form import node_state
from agent.slurm.numbers import UNLIMITED_S
from agent.slurm.queue import Queue, SqueueJob
from tests.agent import shapes
from tests.agent.replayed_slurm import FOR_EVER, RecordedJob, ReplayedSlurm
from tests.agent.shapes import NODE_WORDS, VERSIONS, JsonSlurm
from traces.slurm.text import job_state

HOUR = 3600
NOW = 1_700_000_000
JOB = SqueueJob("7", "train", "me", "science", "gpu", "normal", "RUNNING", "None", 2, 7200, NOW - 90, NOW - 60,
                NOW + 7140, 9, 0, "", "n[1-2]")  # fmt: skip


def cluster(seed: int) -> dict[str, Any]:
    """A cluster at NOW: who runs, waits, has ended or was cancelled, and what its nodes do."""
    rng = np.random.default_rng(seed)
    names = [f"n{k}" for k in range(1, 13)]
    jobs = [RecordedJob("1", "me", 2, 8 * HOUR, NOW - 5 * HOUR, NOW - 4 * HOUR, priority=500, node_list="n[1-2]")]
    for number in range(2, 40):
        submit_s = NOW - int(rng.integers(60, 8 * HOUR))
        kind = rng.integers(0, 4)
        start_s = submit_s + 30 if kind in (0, 3) else FOR_EVER
        end_s = FOR_EVER if kind in (0, 1) else NOW - int(rng.integers(1, 900))
        identity = str(rng.choice([f"{number}", f"{number}_{number % 5}", f"{number}+1"]))
        limit_s = UNLIMITED_S if number == 20 else int(rng.integers(1, 12 * 60)) * 60
        jobs.append(RecordedJob(
            identity, f"u{rng.integers(0, 4)}", int(rng.integers(1, 3)), limit_s, submit_s, start_s, end_s,
            priority=int(rng.integers(0, 1000)), reason=str(rng.choice(["Priority", "Dependency", "Resources"])),
            partition=str(rng.choice(["gpu", "wide", "gpu,wide"])), node_list=names[number % 12],
            name=str(rng.choice(["a job", 'q"\\|\n\t', "é|{"])),
        ))  # fmt: skip
    nodes = {name: str(rng.choice(list(NODE_WORDS))) for name in names}
    return {"jobs": jobs, "now_s": NOW, "nodes": nodes, "partitions": {"gpu": "n[1-8]", "wide": "n[5-12]"}}


def ordered(queue: Queue) -> tuple[list[SqueueJob], list[SqueueJob], frozenset[str], int]:
    def by_id(job: SqueueJob) -> str:
        return job.id

    return sorted(queue.jobs, key=by_id), sorted(queue.ended, key=by_id), queue.hidden, queue.unread


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("seed", range(5))
def test_one_cluster_is_seen_alike_by_text_and_by_json(version: str, seed: int) -> None:
    found = cluster(seed)
    request = SlurmRequest(2, 8 * HOUR, "me")
    by_text, by_json = Eyes(ReplayedSlurm(**found), request), Eyes(JsonSlurm(**found, version=version), request)
    text, other = by_text.look(NOW), by_json.look(NOW)
    assert ordered(text) == ordered(other)
    assert text.form == "" and other.form.startswith("squeue is read as JSON") and "sinfo is read as JSON" in other.form
    assert by_text.context is not None and by_json.context is not None
    assert by_text.context.nodes == by_json.context.nodes
    predecessor = next(job for job in text.jobs if job.id == "1")
    seen, again = by_text.sight(predecessor), by_json.sight(predecessor)
    assert seen.observation == again.observation and seen.hidden == again.hidden


def test_a_recorded_slurm_is_read_alike(shared_traces: Path) -> None:
    """Its squeue in both forms; the text shows its 31 jobs that had not ended, the JSON all 483."""
    lab = shared_traces / "slurm-22.05-lab"
    queue = json_form.parse_queue(gzip.decompress((lab / "squeue.json.gz").read_bytes()).decode(), NOW)
    by_id = {job.id: job for job in queue.jobs}
    header, *lines = (lab / "squeue_o.psv").read_text().splitlines()
    rows = [dict(zip(header.split("|"), line.split("|"), strict=True)) for line in lines]
    whole = [row for row in rows if "[" not in row["JOBID"]]
    for row in whole:
        job = by_id[row["JOBID"]]
        assert (job.name, job.user, job.account, job.partition, job.qos) == tuple(
            row[key] for key in ("NAME", "USER", "ACCOUNT", "PARTITION", "QOS")
        )
        assert (job.state, job.reason, job.nodes, job.node_list) == (
            row["STATE"], row["REASON"], int(row["NODES"]), row["NODELIST"],
        )  # fmt: skip
    assert len(whole) == 30 and sum(job.id.startswith("164_") for job in queue.jobs) == 500
    nodes = json_form.parse_nodes((lab / "sinfo.json").read_text())
    found = [line.split("|") for line in (lab / "sinfo_N.psv").read_text().splitlines()[1:]]
    assert nodes.states == {row[0]: row[2] for row in found}


@pytest.mark.parametrize(("word", "words"), NODE_WORDS.items())
def test_words_of_a_node(word: str, words: list[str]) -> None:
    assert node_state(words) == node_state([one.lower() for one in reversed(words)]) == word


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["RUNNING"], "RUNNING"),
        (["RUNNING", "COMPLETING"], "COMPLETING"),
        (["COMPLETED", "COMPLETING"], "COMPLETING"),
        (["RUNNING", "CONFIGURING"], "CONFIGURING"),
        (["PENDING", "REQUEUED"], "REQUEUED"),
        (["PENDING", "EXPEDITING"], "EXPEDITING"),
        (["SOMETHING_NEW"], "SOMETHING_NEW"),
    ],
)
def test_words_of_a_job(words: list[str], word: str) -> None:
    assert job_state(words) == job_state(words[::-1]) == word


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("waiting", "tasks"), [("1-3,7%2", [1, 2, 3, 7]), ("0-20:5", [0, 5, 10, 15, 20]), ("4", [4])])
def test_the_waiting_tasks_of_an_array_are_jobs(version: str, waiting: str, tasks: list[int]) -> None:
    record = shapes.job(version, replace(JOB, state="PENDING", start_s=None, end_s=None), waiting=waiting)
    queue = json_form.parse_queue(shapes.answer(version, "jobs", [record]), NOW)
    assert [job.id for job in queue.jobs] == [f"7_{task}" for task in tasks]


def read_with(**changes: Any) -> Queue:
    """A queue of two jobs, the second with other values in its record; `None` of `drop` takes a key out."""
    other = {**shapes.job("24.11", replace(JOB, id="8")), **changes}
    rows = [shapes.job("24.11", JOB), {key: value for key, value in other.items() if value != "drop"}]
    return json_form.parse_queue(shapes.answer("24.11", "jobs", rows), NOW)


@pytest.mark.parametrize(
    "changes",
    [
        {"user_name": "drop"}, {"user_name": ""}, {"user_name": 3}, {"job_state": []}, {"job_state": {"is": "RUNNING"}},
        {"submit_time": {"set": False}}, {"submit_time": "yesterday"}, {"submit_time": -1}, {"submit_time": 1.5},
        {"priority": True}, {"priority": None}, {"node_count": "4"}, {"nodes": ["n1"]}, {"time_limit": "drop"},
        {"job_id": "x"}, {"array_job_id": 8, "array_task_string": "3-1"}, {"array_job_id": 8, "array_task_string": "a"},
        {"array_job_id": 8, "array_task_string": "0-999999999"}, {"priority": 1 << 64},
    ],
)  # fmt: skip
def test_a_job_of_another_shape_is_left_out_and_counted(changes: dict[str, Any]) -> None:
    queue = read_with(**changes)
    assert ([job.id for job in queue.jobs], queue.unread) == (["7"], 1)


def test_what_may_be_missing() -> None:
    queue = read_with(priority=0xFFFFFFFE - 1, state_description="job held", comment=None, end_time=0, time_limit=0)
    job = queue.jobs[1]
    assert (job.reason, job.comment, job.end_s, job.limit_s, queue.unread) == ("job held", "", None, 60, 0)


@pytest.mark.parametrize(
    "text",
    ["", "squeue: unrecognized option", "[]", "{}", '{"jobs": {}}', '{"jobs": [3]}', '{"jobs": [{}]}', "[" * 100_000,
     '{"jobs": [{"job_id": ' + "9" * 5000 + "}]}"],
)  # fmt: skip
def test_another_shape_is_nonsense(text: str) -> None:
    with pytest.raises(SlurmError) as caught:
        json_form.parse_queue(text, NOW)
    assert caught.value.kind == "nonsense"


@pytest.mark.parametrize(
    "row",
    [{}, {"name": "n1"}, {"name": 1, "state": "idle"}, {"nodes": [], "node": {"state": ["IDLE"]}},
     {"nodes": {"nodes": 3}}, {"nodes": {"nodes": ["n1"]}, "node": {"state": 5}}],
)  # fmt: skip
def test_a_node_of_another_shape_is_nonsense(row: dict[str, Any]) -> None:
    with pytest.raises(SlurmError) as caught:
        json_form.parse_nodes(json.dumps({"sinfo": [row]}))
    assert caught.value.kind == "nonsense"


def test_arrays_that_would_fill_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_form, "MOST_JOBS", 5)
    rows = [shapes.job("24.11", replace(JOB, id=str(number)), waiting="1-4") for number in (7, 8)]
    with pytest.raises(SlurmError, match="more than 5 jobs"):
        json_form.parse_queue(shapes.answer("24.11", "jobs", rows), NOW)


def test_text_comes_first_and_json_goes_on_until_it_fails() -> None:
    slurm = JsonSlurm(**cluster(1))
    eyes = Eyes(slurm, SlurmRequest(1, HOUR, "me"))
    eyes.look(NOW)
    assert slurm.calls["squeue"] == slurm.calls["sinfo"] == 2
    assert eyes.look(NOW).form and slurm.calls["squeue"] == 3
    whole, slurm.run = slurm.run, broken(slurm)  # type: ignore[method-assign]
    with pytest.raises(SlurmError, match="Invalid job format specification"):
        eyes.look(NOW)
    slurm.run = whole  # type: ignore[method-assign]
    assert slurm.calls["squeue"] == 4
    assert eyes.look(NOW).form and slurm.calls["squeue"] == 6


def broken(slurm: JsonSlurm) -> Any:
    """Its answers in a shape that nobody knows."""
    whole = slurm.run

    def run(*argv: str, **options: Any) -> str:
        return "{}" if "--json" in argv else whole(*argv, **options)

    return run


def test_a_slurm_that_is_away_is_not_asked_twice() -> None:
    slurm = JsonSlurm(**cluster(1), text_fails="away")
    eyes = Eyes(slurm, SlurmRequest(1, HOUR, "me"))
    with pytest.raises(SlurmError):
        eyes.look(NOW)
    assert slurm.calls["squeue"] == 1

"""No number that Slurm prints, however large or odd, ends a look: its row is left out, or its answer is nonsense."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent.chains import submission
from agent.chains.state import LinkAttempt
from agent.memory import Memory
from agent.slurm import json_form, numbers
from agent.slurm.accounting import parse_past
from agent.slurm.commands import SlurmError, answer_lines
from agent.slurm.limits import read_limits
from agent.slurm.nodes import parse_nodes
from agent.slurm.queue import FIELDS, parse_queue
from agent.slurm.settings import parse_partitions, parse_settings
from tests.agent.fake_slurm import START_S, FakeCommands, FakeSlurm
from tests.agent.lab import lab_of
from traces.units import DAY_S

HUGE = (10**30, 10**17, 1 << 63, (1 << 32) + 1)
ODD = ("-1", "1e9", "²", "٣", "1.5", "nan", "9" * 5000, "0x10", "1_000")
ROW = {"id": "12", "user": "u", "partition": "gpu", "state": "COMPLETED", "submit": "1000", "start": "1060",
       "end": "4660", "limit": "01:00:00", "nodes": "2"}  # fmt: skip


@pytest.mark.parametrize("field", ["id", "submit", "start", "end", "nodes"])
@pytest.mark.parametrize("value", [*map(str, HUGE), *ODD])
def test_a_row_of_sacct_that_is_out_of_bounds_is_left_out(field: str, value: str) -> None:
    if field == "id" and value in ("1.5", "1_000"):  # a step, and a task of an array
        return
    past = parse_past("|".join(ROW.values()) + "\n" + "|".join((ROW | {field: value}).values()) + "\n")
    assert (len(past.jobs), past.unread) == (1, 1)
    memory = Memory()
    memory.learn(past)
    memory.recent(5000, lambda name: True)


def test_the_largest_numbers_that_count_overflow_nothing() -> None:
    row = ROW | {
        "submit": "1000",
        "start": "1000",
        "end": str(1 << 32),
        "nodes": str(1 << 20),
        "limit": "999999-00:00:00",
    }
    past = parse_past(("|".join(row.values()) + "\n") * 3)
    memory = Memory(DAY_S)
    memory.learn(past)
    recent = memory.recent(2000, lambda name: True)
    assert recent.arrived_node_s.tolist() == [(1 << 20) * numbers.UNLIMITED_S] and recent.ended_use[0] > 100


@pytest.mark.parametrize("field", ["NumNodes", "SubmitTime", "StartTime", "EndTime", "PriorityLong", "RestartCnt"])
@pytest.mark.parametrize("value", [*map(str, HUGE), *ODD])
def test_a_row_of_squeue_that_is_out_of_bounds_is_left_out(field: str, value: str) -> None:
    good = dict.fromkeys(FIELDS, "1") | {"State": "RUNNING", "TimeLimit": "1:00:00"}
    text = "".join("".join(f"{one}|m|" for one in row.values()) + "\n" for row in (good, good | {field: value}))
    queue = parse_queue(text, "|m|", START_S)
    assert (len(queue.jobs), queue.unread) == (1, 1)


def test_a_limit_of_any_length_is_at_most_unlimited() -> None:
    for text in ("9" * 30, "999999-00:00:00", "UNLIMITED", "366-00:00:00"):
        assert numbers.time_limit_s(text) == numbers.UNLIMITED_S
    assert numbers.time_limit_s("0:01") == numbers.LEAST_S


@pytest.mark.parametrize("field", ["node_count", "submit_time", "start_time", "priority", "job_id", "restart_cnt"])
@pytest.mark.parametrize("value", HUGE)
def test_a_job_in_json_that_is_out_of_bounds_is_left_out(field: str, value: int) -> None:
    job: dict[str, Any] = {
        "job_id": 7, "name": "n", "user_name": "u", "account": "a", "partition": "gpu", "qos": "q", "nodes": "n1",
        "job_state": "RUNNING", "state_reason": "None", "node_count": 1, "time_limit": 60, "submit_time": 1,
        "start_time": 2, "end_time": 3, "priority": 4, "restart_cnt": 0, "comment": "",
    }  # fmt: skip
    queue = json_form.parse_queue(json.dumps({"jobs": [job, job | {field: value}]}), START_S)
    assert (len(queue.jobs), queue.unread) == (1, 1)


@pytest.mark.parametrize("value", [*map(str, HUGE), *ODD])
def test_settings_limits_and_partitions_out_of_bounds_are_nonsense_or_none(value: str) -> None:
    lines = "Configuration data as of {}", "SLURM_VERSION = 22.05", "PriorityWeightAge = {}"
    config = "\n".join((*lines, "AccountingStorageEnforce = limits\n"))
    with pytest.raises(SlurmError):
        parse_settings(config.format(value, 1))
    settings = parse_settings(config.format(START_S, value))
    assert settings.age_weight == 0
    line = "PartitionName=gpu Nodes=n[1-4] MaxTime=1-0 PriorityTier={} TRES=node={}\n"
    with pytest.raises(SlurmError):
        parse_partitions(line.format(value, 4))
    partition = parse_partitions(line.format(1, value))["gpu"]
    assert partition.whole == {}

    class Sacctmgr(FakeCommands):
        def run(self, *argv: str, **_: Any) -> str:
            return (
                f"||normal|{value}||node={value}|{value}||\n"
                if "association" in argv
                else f"normal||{value}|cpu={value}|{value}||{value}|||node={value}\n"
            )

    found, table = read_limits(Sacctmgr(FakeSlurm()), settings, partition, user="u", account="", qos="")
    assert found == type(found)() == table.by_name["normal"].limits and table.factors == {"normal": 0.0}


@pytest.mark.parametrize("field", [0, 3, 4, 5])
@pytest.mark.parametrize("value", [*map(str, HUGE), *ODD])
def test_a_look_up_out_of_bounds_is_nonsense(field: int, value: str) -> None:
    row = ["100", "COMPLETED", "0:0", "1000", "1060", "4660"]
    row[field] = value
    with pytest.raises(SlurmError) as caught:
        submission._newest("sacct", [row])
    assert caught.value.kind == "nonsense"


@pytest.mark.parametrize(
    ("program", "parse", "line"),
    [
        ("sinfo", parse_nodes, "idle|n{}x[1-100000]\n"),
        ("scontrol", parse_partitions, "PartitionName=p{} Nodes=n[1-100000]\n"),
    ],
)
def test_the_nodes_of_one_answer_are_bounded_together(program: str, parse: Callable[[str], Any], line: str) -> None:
    with pytest.raises(SlurmError, match=f"{program}: .*2100000 is not between 0 and {numbers.MOST_NAMES}"):
        parse("".join(line.format(number) for number in range(3000)))


def test_an_answer_that_ends_within_a_line_is_nonsense() -> None:
    assert answer_lines("sinfo", "a\nb\n") == ["a", "b"] and answer_lines("sinfo", "") == []
    with pytest.raises(SlurmError, match="ends within a line"):
        answer_lines("sinfo", "a\nb")


@pytest.mark.parametrize("answer", ["10", "100", "", "100;lab", "100\n100\n", "-1\n", "1" * 11 + "\n"])
def test_an_answer_of_sbatch_that_may_be_truncated_gives_no_job_id(answer: str, tmp_path: Any) -> None:
    """Half an id is the id of another job: the link would count as lost while it runs."""
    lab = lab_of(tmp_path, links=1)
    attempt = LinkAttempt(1, 1, "train-00000000-1.1", START_S)
    lab.slurm.call = lambda argv: answer  # type: ignore[method-assign]
    with pytest.raises(SlurmError, match="is not a job id"):
        submission.submit(lab.commands, lab.chain, lab.folder, attempt, "", {})


def test_a_job_is_looked_up_by_name_and_id_and_cancelled_behind_two_dashes(tmp_path: Any) -> None:
    lab = lab_of(tmp_path, links=1)
    asked: list[tuple[str, ...]] = []
    lab.commands.before = asked.append
    lab.slurm.submit("train-00000000-1.1", user="somebody")
    attempt = LinkAttempt(1, 1, "train-00000000-1.1", START_S, job_id="100")
    assert submission.look_up(lab.commands, attempt) is None
    assert all("--name=train-00000000-1.1" in argv and "--jobs=100" in argv for argv in asked)
    assert submission.look_up(lab.commands, attempt, first="100") is None
    assert all("--name=train-00000000-1.1" not in argv for argv in asked[2:])
    asked.clear()
    assert submission.look_up(lab.commands, replace(attempt, submit_s=START_S)) is None
    assert ["--name=train-00000000-1.1" in argv for argv in asked] == [True, True, False, False]
    submission.cancel(lab.commands, "100")
    assert asked[-1] == ("scancel", "--", "100")

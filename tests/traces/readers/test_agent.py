"""The reader of the agent's decision log: every line is a row, a duplicate or a reject, also when the log grows."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.agent.fake_slurm import FakeSlurm, Plan
from tests.agent.lab import Lab, lab_of, plans
from tests.traces.conftest import Lake
from tests.traces.readers.agent_lines import EVENTS, ROWS, Row, agent_line
from traces.errors import InputError
from traces.units import HOUR_S

TABLES = ("agent_decisions", "agent_events")


def whole() -> list[str]:
    """A line of each event."""
    return [agent_line(event) for event in EVENTS]


def events_of(lake: Lake) -> list[dict[str, Any]]:
    """Every row of the log's tables, without the file that it came from."""
    rows = [row | {"event": row.get("event", "decision")} for name in TABLES for row in lake.rows(name)]
    return [{k: v for k, v in row.items() if k not in ("trace_sha256", "line")} for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_one_oddity(lake: Lake, row: Row) -> None:
    """The table of docs/oddities.md."""
    (result,) = lake.ingest(lake.put("log", f"{agent_line('note')}\n{row.lines}\n"))
    assert (result.format, result.rows, result.rejects) == ("agent", 2, row.refused is not None)
    if row.refused is not None:
        (reject,) = lake.rows("rejects")
        assert reject["line"] == 2 and row.refused in reject["reason"] and len(reject["raw"]) <= 2_000
        assert "\n" not in reject["reason"] and len(reject["reason"]) < 300
    else:
        found = next(line for line in lake.rows(row.table) if line["line"] == 2)
        assert {name: found[name] for name in row.row} == row.row


def test_every_event_is_a_row_with_what_the_line_says(lake: Lake) -> None:
    (result,) = lake.ingest(lake.put("log", "\n".join(whole()) + "\n"))
    assert (result.rows, result.samples, result.rejects, result.duplicates) == (len(EVENTS), len(EVENTS), 0, 0)
    (decision,) = lake.rows("agent_decisions")
    assert (decision["left_s"], decision["start_estimate_s"], decision["start_expected_s"]) == (1800, 2700, 900)
    assert (decision["policy"], decision["version"], decision["setting"]) == ("forest", "00ff00ff00ff", 1.5)
    assert (decision["hidden"], decision["decided_by"]) == ("held_jobs,held_nodes", "policy")
    events = {row["event"]: row for row in lake.rows("agent_events")}
    assert set(events) == set(EVENTS) - {"decision"}
    assert events["ended"]["end_utc"] - events["ended"]["start_utc"] == timedelta(hours=2)
    assert events["chain"]["state"] == "done" and events["note"]["text"].startswith("no look")
    assert events["started"]["start_utc"] == datetime(2027, 1, 15, 8, 1)


@pytest.mark.parametrize("pack", [False, True])
def test_a_log_that_is_written_to(lake: Lake, pack: bool) -> None:
    """Lines written twice after a kill are duplicates; a line that was cut off costs itself and no other."""
    lines = whole()
    text = "\n".join([*lines, lines[3], lines[2][:40], agent_line("note", text="later"), lines[5][:50]])
    (result,) = lake.ingest(lake.put("log", gzip.compress(text.encode()) if pack else text))
    assert (result.rows, result.samples, result.duplicates, result.rejects) == (len(lines) + 4, len(lines) + 1, 1, 2)
    assert [row["line"] for row in lake.rows("rejects")] == [len(lines) + 2, len(lines) + 4]


def test_a_log_that_has_grown_and_its_copies_hold_every_line_once(lake: Lake) -> None:
    lines = [agent_line(event, time_s=n) for n in range(9) for event in EVENTS]
    path = lake.put("decisions.jsonl", "\n".join(lines[:40]) + "\n" + lines[40][:30])
    lake.ingest(path)
    assert len(events_of(lake)) == 40 and len(lake.rows("rejects")) == 1
    lake.ingest(lake.put("decisions.jsonl", "\n".join(lines) + "\n"))
    once = events_of(lake)
    assert len(once) == len(lines) and lake.rows("rejects") == [] and len(lake.rows("trace_files")) == 1
    lake.ingest(lake.put("copy of yesterday", "\n".join(lines[:40]) + "\n"), lake.put("rest", "\n".join(lines[30:])))
    assert events_of(lake) == once and len(lake.rows("trace_files")) == 3


def test_a_log_in_which_no_line_can_be_read_is_refused_in_one_line(lake: Lake) -> None:
    with pytest.raises(InputError, match=r"no record could be read as agent: line 1: log_version is '2'") as error:
        lake.ingest(lake.put("log", agent_line(log_version=2) + "\n"))
    assert "\n" not in str(error.value)


def _lab(path: Path) -> Lab:
    """A chain with all that may happen: a failure and a retry, a requeue, a withdrawn link, a link held up."""
    slurm = FakeSlurm(nodes=2, plan=plans(link_2_1=Plan(HOUR_S, "NODE_FAIL"), link_3_1=Plan(600, "FAILED", 7)))
    lab = lab_of(path, slurm, links=5, setting=1.5, most_overlap_h=1.0)
    lab.extra.update(start_estimate_h=0.4, start_estimate_expected_h=0.1)
    return lab


def test_the_tables_say_what_the_agent_did(lake: Lake, tmp_path: Path) -> None:
    """A log of the agent's own code, on a Slurm in memory: each line against its row, each job against Slurm's."""
    lab = _lab(tmp_path / "lab")
    lab.run()
    log = lab.folder.path / "decisions.jsonl"
    (result,) = lake.ingest(log)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert result.rejects == 0 and result.rows == len(lines) and result.samples == len({json.dumps(x) for x in lines})
    decisions, events = lake.rows("agent_decisions"), lake.rows("agent_events")
    for row in decisions:
        line = lines[row["line"] - 1]
        assert row["left_s"] == round(3600 * line["observation"]["remaining_h"])
        for column, name in (("submit", "submit"), ("decided_by", "by"), ("score", "score"), ("version", "version")):
            assert row[column] == line[name]
    assert {e["event"] for e in events} >= {"submitted", "started", "withdrawn", "ended", "handover", "chain"}

    def epoch(time: datetime | None) -> int | None:
        return None if time is None else int(time.replace(tzinfo=UTC).timestamp())

    for job in lab.slurm.jobs:
        ended = [e for e in events if e["event"] == "ended" and e["job_id"] == str(job.id)][-1]
        assert (ended["state"], epoch(ended["end_utc"]), ended["job_name"]) == (job.state, job.end_s, job.name)
        started = [e for e in events if e["event"] == "started" and e["job_id"] == str(job.id)]
        assert [epoch(e["start_utc"]) for e in started] == ([] if job.start_s is None else [job.start_s])
    by_id = {str(job.id): job for job in lab.slurm.jobs}
    for row in (e for e in events if e["event"] == "handover"):
        before, after = by_id[row["predecessor_id"]], by_id[row["job_id"]]
        assert before.end_s is not None and after.start_s is not None
        gap_s = after.start_s - min(before.end_s, after.end_s or before.end_s)
        assert (row["interruption_s"], row["overlap_s"]) == (max(gap_s, 0), max(-gap_s, 0))

"""Write generated jobs like `sacct -a -D -X -P` (or with steps): pipes between fields, nothing escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from traces.arrays import Int64s
from traces.generate import workload as demand
from traces.generate.schedule import BY_BACKFILL, BY_MAIN, BY_SUBMIT, Schedule, schedule
from traces.generate.text import open_text
from traces.generate.workload import GeneratedDemand
from traces.units import WEEK_S

COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "State", "ExitCode", "Submit", "Eligible",
    "Start", "End", "ElapsedRaw", "TimelimitRaw", "NNodes", "NCPUS", "ReqTRES", "AllocTRES", "ReqMem", "NodeList",
    "Priority", "Flags", "Reason", "MaxRSS", "TotalCPU",
)  # fmt: skip
CPUS_A_NODE, GIB_A_NODE = 64, 480
PARTITION, QOS = "gpu", "normal"
ACCOUNTS = ("vision", "climate", "genomics", "nlp", "physics", "materials")
STEMS = ("train", "finetune", "eval", "md_run", "sweep", "pretrain-7b", "relax", "infer", "bench", "ddp")
# Job names that sacct prints without escaping.
HOSTILE_NAMES = (
    "a|b", "|", "loss|val|test", "<script>alert(1)</script>", "<img src=x onerror=alert(2)>", '"quoted" \'name\'',
    "=HYPERLINK(\"http://example.org\")", "+1+cmd|' /C calc'!A0", "@SUM(A1)", "训练-模型", "entraînement-été", "🚀 go",
    "tab\there", "bell\x07name", "esc\x1b[31mred", "\u202egnirts", "'; DROP TABLE jobs; --", "../../etc/passwd",
    "{{ 7*7 }}", "$(touch x)", " ", "None", "Unknown", "null", "a" * 120,
)  # fmt: skip
HOSTILE_EVERY = 120  # one group in so many has a hostile name
CHUNK_ROWS = 20_000
FIRST_JOB_ID = 410_000

STATES = {
    demand.COMPLETED: ("COMPLETED", ("0:0",)),
    demand.FAILED: ("FAILED", ("1:0", "1:0", "2:0", "127:0", "0:9", "0:53")),
    demand.TIMEOUT: ("TIMEOUT", ("0:0",)),
    demand.CANCELLED: ("CANCELLED by ", ("0:0", "0:15")),
    demand.OUT_OF_MEMORY: ("OUT_OF_MEMORY", ("0:125",)),
    demand.NODE_FAIL: ("NODE_FAIL", ("0:0",)),
    demand.REQUEUE_BY_ADMIN: ("REQUEUED", ("0:0",)),
}
FLAGS = {
    by: f"{flag},StartRecieved"  # Slurm's own spelling
    for by, flag in ((BY_SUBMIT, "SchedSubmit"), (BY_MAIN, "SchedMain"), (BY_BACKFILL, "SchedBackfill"))
}
REASONS = {demand.DEPENDS: "Dependency", demand.THROTTLED: "JobArrayTaskLimit", demand.REQUEUED: "BeginTime"}


@dataclass(frozen=True)
class GeneratedHistory:
    """All events on the generated cluster, and the ids that Slurm would have assigned."""

    jobs: GeneratedDemand
    plan: Schedule
    raw_id: Int64s  # (records,) JobIDRaw
    array_id: Int64s  # (records,) JobIDRaw of the array's own record; the record's own id elsewhere
    order: Int64s  # (records,) order of sacct's output
    gpus_per_node: int
    last_s: int


def generated_history(
    *, jobs: int | None, weeks: int, nodes: int, gpus_per_node: int, seed: int, warm_weeks: int = 1
) -> GeneratedHistory:
    """Draw the demand, run the queue and number the jobs. The first `warm_weeks` weeks only fill the cluster."""
    rng = np.random.default_rng(seed)
    first_s = demand.EPOCH_S - warm_weeks * WEEK_S
    drawn, covered = demand.demand(rng, jobs=jobs, weeks=weeks + warm_weeks, nodes=nodes, first_s=first_s)
    last_s = first_s + covered * WEEK_S
    plan = schedule(drawn, nodes=nodes, until_s=last_s)
    raw_id, array_id = _number(drawn, plan)
    order = np.lexsort((np.arange(len(drawn)), raw_id))
    return GeneratedHistory(drawn, plan, raw_id, array_id, order, gpus_per_node, last_s)


def write_dump(out: Path, past: GeneratedHistory, *, from_s: int, at_s: int, steps: bool, compress: bool) -> Path:
    """Write sacct's output at `at_s` for the window from `from_s`, without jobs that ended before it."""
    jobs, plan = past.jobs, past.plan
    known = (plan.submit_s <= at_s) & (
        (plan.eligible_s >= 0) | (jobs.link == demand.DEPENDS) | (jobs.link == demand.THROTTLED)
    )
    ended = (plan.end_s >= 0) & (plan.end_s < from_s)
    order = past.order[(known & ~ended)[past.order]]
    with open_text(out, compress=compress) as stream:
        stream.write("|".join(COLUMNS) + "\n")
        for begin in range(0, len(order), CHUNK_ROWS):
            stream.writelines(_Rows(past, order[begin : begin + CHUNK_ROWS], at_s, steps).lines())
    return out


def _number(jobs: GeneratedDemand, plan: Schedule) -> tuple[Int64s, Int64s]:
    """Assign job ids in order of submission; return (raw ids, array ids).

    Both runs of a requeued job share one id; the last task of an array has the array's base id. Records that were never
    submitted, because their predecessor had not ended, get the last ids and are never printed.
    """
    count = len(jobs)
    starts = np.flatnonzero(np.concatenate([[True], jobs.group[1:] != jobs.group[:-1]]))
    lengths = np.diff(np.append(starts, count))
    is_array = np.repeat(jobs.kind[starts] == demand.ARRAY, lengths)
    # All tasks of an array get their ids together; every other record gets one when it is submitted.
    moment = np.where(is_array, np.repeat(plan.submit_s[starts], lengths), plan.submit_s)
    moment = np.where((plan.eligible_s < 0) & (jobs.link == demand.FOLLOWS), np.iinfo(np.int64).max, moment)
    second_run = jobs.link == demand.REQUEUED
    numbered = np.flatnonzero(~second_run)
    ordered = numbered[np.lexsort((numbered, moment[numbered]))]
    raw = np.empty(count, dtype=np.int64)
    raw[ordered] = FIRST_JOB_ID + np.arange(len(ordered))
    raw[second_run] = raw[np.flatnonzero(second_run) - 1]
    base = np.repeat(raw[starts], lengths)
    last = jobs.member == np.repeat(lengths, lengths) - 1
    raw = np.where(is_array, np.where(last, base, base + 1 + jobs.member), raw)
    return raw, np.where(is_array, base, raw)


class _Rows:
    """Up to `CHUNK_ROWS` records as text. Times are formatted column by column, the rest row by row."""

    def __init__(self, past: GeneratedHistory, index: Int64s, at_s: int, steps: bool) -> None:
        self.past, self.index, self.at_s, self.steps = past, index, at_s, steps
        jobs, plan = past.jobs, past.plan
        self.columns: dict[str, list[int]] = {
            name: getattr(jobs, name)[index].tolist()
            for name in (
                "group",
                "kind",
                "member",
                "user",
                "nodes",
                "limit_s",
                "outcome",
                "link",
                "throttle",
                "priority",
            )
        } | {
            "raw": past.raw_id[index].tolist(),
            "array": past.array_id[index].tolist(),
            "start": plan.start_s[index].tolist(),
            "end": plan.end_s[index].tolist(),
            "eligible": plan.eligible_s[index].tolist(),
            "by": plan.started_by[index].tolist(),
            "first": plan.first_node[index].tolist(),
        }
        self.texts = {
            name: np.datetime_as_string(column[index].astype("datetime64[s]")).tolist()
            for name, column in (
                ("submit", plan.submit_s), ("eligible", plan.eligible_s), ("start", plan.start_s), ("end", plan.end_s),
            )
        }  # fmt: skip

    def lines(self) -> Iterator[str]:
        """Yield the rows, with steps after their job; as in sacct, pending tasks of one array share a row."""
        c = self.columns
        waiting: list[int] = []
        for row in range(len(self.index)):
            if waiting and c["array"][row] != c["array"][waiting[0]]:
                yield self._pending_tasks(waiting)
                waiting = []
            state = self._state(row)
            if c["kind"][row] == demand.ARRAY and state == "PENDING":
                waiting.append(row)
                continue
            yield self._job(row, state, self._job_id(row), c["raw"][row])
            if self.steps and c["start"][row] >= 0 and state != "PENDING":
                yield from self._steps(row, state)
        if waiting:
            yield self._pending_tasks(waiting)

    def _state(self, row: int) -> str:
        """Return the state at the time of the dump."""
        c = self.columns
        start, end = c["start"][row], c["end"][row]
        if start < 0 and 0 <= end <= self.at_s:
            return f"CANCELLED by {_uid(c['user'][row])}"
        if start < 0 or start > self.at_s:
            return "PENDING"
        if end > self.at_s:
            return "RUNNING"
        state = STATES[c["outcome"][row]][0]
        return f"{state}{_uid(c['user'][row])}" if state.endswith(" ") else state

    def _job_id(self, row: int) -> str:
        c = self.columns
        return f"{c['array'][row]}_{c['member'][row]}" if c["kind"][row] == demand.ARRAY else str(c["raw"][row])

    def _pending_tasks(self, rows: list[int]) -> str:
        """Format the pending tasks of an array, `123_[4-10%2]`, which share its base record."""
        c = self.columns
        row = rows[0]
        throttle = f"%{c['throttle'][row]}" if c["throttle"][row] else ""
        tasks = bracket(sorted(c["member"][r] for r in rows), width=1)
        return self._job(row, "PENDING", f"{c['array'][row]}_[{tasks}{throttle}]", c["array"][row])

    def _job(self, row: int, state: str, job_id: str, raw: int) -> str:
        c, t = self.columns, self.texts
        nodes, user, group = c["nodes"][row], c["user"][row], c["group"][row]
        ran = state != "PENDING" and c["start"][row] >= 0
        started = t["start"][row] if ran else ("Unknown" if state == "PENDING" else "None")
        ended = "Unknown" if state in ("PENDING", "RUNNING") else t["end"][row]
        elapsed = (min(c["end"][row], self.at_s) - c["start"][row]) if ran else 0
        eligible = t["eligible"][row] if 0 <= c["eligible"][row] <= self.at_s else "Unknown"
        exit_codes = STATES[c["outcome"][row]][1]
        finished = ran and state != "RUNNING"
        tres = tres_text(nodes, self.past.gpus_per_node)
        limit = (
            "Partition_Limit" if c["limit_s"][row] == demand.MAX_LIMIT_S and raw % 149 == 0 else c["limit_s"][row] // 60
        )
        account = ACCOUNTS[user % len(ACCOUNTS)]
        return (
            f"{job_id}|{raw}|{job_name(user, group)}|{user_name(user)}|{account}|{PARTITION}|{QOS}|"
            f"{state}|{exit_codes[raw % len(exit_codes)] if finished else '0:0'}|{t['submit'][row]}|{eligible}|"
            f"{started}|{ended}|{elapsed}|{limit}|{nodes}|{nodes * CPUS_A_NODE}|{tres}|{tres if ran else ''}|"
            f"{nodes * GIB_A_NODE}G|{self._node_list(row) if ran else 'None assigned'}|{c['priority'][row]}|"
            f"{FLAGS[c['by'][row]] if ran else 'StartRecieved'}|{REASONS.get(c['link'][row], 'None')}||\n"
        )

    def _steps(self, row: int, state: str) -> Iterator[str]:
        """Yield the batch and extern steps, and one srun step for jobs wider than a node; only steps have usage."""
        c, t = self.columns, self.texts
        nodes, raw, elapsed = c["nodes"][row], c["raw"][row], min(c["end"][row], self.at_s) - c["start"][row]
        ended = "Unknown" if state == "RUNNING" else t["end"][row]
        held = self._node_list(row)
        first = held.split("[")[0] + held.split("[")[1][:2] if "[" in held and len(held.split("[")) == 2 else held
        base = "CANCELLED" if state.split(" ")[0] in ("CANCELLED", "TIMEOUT", "NODE_FAIL", "REQUEUED") else state
        code = "0:15" if base == "CANCELLED" else STATES[c["outcome"][row]][1][0] if ended != "Unknown" else "0:0"
        wide = [("0", "python", nodes, held)] if nodes > 1 else []
        for step, name, count, where in [("batch", "batch", 1, first), ("extern", "extern", nodes, held), *wide]:
            used = step != "extern"
            rss = f"{(raw * 7919 % 400 + 3) * 1_048_576 // 4}K" if used else "0"
            busy = elapsed * count * (20 + raw % 60) // (100 if step == "0" else 10_000)
            shown_state = "COMPLETED" if step == "extern" and ended != "Unknown" else base
            yield (
                f"{self._job_id(row)}.{step}|{raw}.{step}|{name}||{ACCOUNTS[c['user'][row] % len(ACCOUNTS)]}|||"
                f"{shown_state}|{'0:0' if step == 'extern' else code}|{t['start'][row]}|{t['start'][row]}|"
                f"{t['start'][row]}|{ended}|{elapsed}||{count}|{count * CPUS_A_NODE}||"
                f"{tres_text(count, self.past.gpus_per_node)}||{where}||||{rss}|{clock(busy if used else 0)}\n"
            )

    def _node_list(self, row: int) -> str:
        first = self.columns["first"][row]
        held = self.past.plan.node_list[first : first + self.columns["nodes"][row]].tolist()
        return node_list([node + 1 for node in held])


def node_list(numbers: list[int]) -> str:
    """Format sorted node numbers in Slurm's compressed form: gpu07, gpu[01-03,08]."""
    if len(numbers) == 1:
        return f"gpu{numbers[0]:02d}"
    return f"gpu[{bracket(numbers, width=2)}]"


def bracket(numbers: Iterable[int], *, width: int) -> str:
    """Format sorted numbers as ranges: 1-3,8."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in ranges)


def tres_text(nodes: int, gpus_per_node: int) -> str:
    """Format the TRES of whole nodes; as in Slurm, the typed and the untyped count are the same GPUs."""
    cpus, gpus = nodes * CPUS_A_NODE, nodes * gpus_per_node
    return f"billing={cpus},cpu={cpus},gres/gpu:a100={gpus},gres/gpu={gpus},mem={nodes * GIB_A_NODE}G,node={nodes}"


def clock(seconds: int) -> str:
    """Format seconds as [D-]HH:MM:SS."""
    days, rest = divmod(seconds, 86400)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def user_name(user: int) -> str:
    """Return the name of a user by number, from u001 on."""
    return f"u{user + 1:03d}"


def _uid(user: int) -> int:
    return 20_001 + user


def job_name(user: int, group: int) -> str:
    """Return one name for a whole group, so that chains can be recognised; every `HOSTILE_EVERY`th is hostile."""
    if group % HOSTILE_EVERY == 7:
        return HOSTILE_NAMES[group // HOSTILE_EVERY % len(HOSTILE_NAMES)]
    return f"{STEMS[user * 7 % len(STEMS)]}_{user % 13}-{group % 211}"

"""Convert `sacct --json` (data_parser v0.0.38 to v0.0.45) to the text columns of `sacct -P`, in batches of jobs.

Compared with `sacct -P`, this loses some information:

- Slurm 22.05 prints the exit code SUCCESS for failed jobs too; in its form, SUCCESS counts only for a completed job.
- Without `--duplicates`, the submission of an earlier run is missing.
- Of CPU time, milliseconds are kept, as `sacct -P` prints them.

Times are epoch seconds, so clock changes do not affect them. `line` in the tables is the number of the job's record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from traces.errors import InputError
from traces.readers.common import RawFile, Reject, shown
from traces.readers.json_documents import Documents
from traces.readers.sacct.columns import NO_VALUE
from traces.slurm import text as slurm_text

COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "User", "Account", "Partition", "QOS", "State", "Submit", "Eligible", "Start",
    "End", "ElapsedRaw", "Suspended", "TimelimitRaw", "AllocNodes", "AllocCPUS", "ReqTRES", "AllocTRES", "NodeList",
    "Priority", "Flags", "MaxRSS", "TotalCPU", "Reason", "Constraints", "ExitCode", "Cluster", "SLUID", "OriginalSLUID",
    "Restarts", "FailedNode", "SubmitLine", "TRESUsageInTot", "TRESUsageInMax",
)  # fmt: skip
INFINITE = "Infinity"  # printed by a data_parser with +complex
BATCH = 10_000  # jobs
PIECE_BYTES = 1 << 22
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
Row = tuple[str | int | None, ...]
_JOBS = re.compile(r'"jobs"\s*:\s*\[')
# Versions whose real dumps the tests read, of Slurm and of the plugin that wrote the JSON.
PROVEN = {
    "Slurm": ("22.05", "24.11", "26.05"),
    "data_parser": ("v0.0.38", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"),
}


@dataclass
class Records:
    """Jobs and steps as text (`frame`, with `line` from 0), the rejects, and the number of jobs before them.

    `unproven`: versions that the documents name and that are not in PROVEN; the last batch has those of the whole file.
    """

    frame: pl.DataFrame
    rejects: list[Reject]
    before: int
    unproven: list[str] = field(default_factory=list)


def recognises(head: bytes) -> bool:
    """Return whether the file begins like the output of `sacct --json`."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    known = "slurm" in text[:2000].lower() or (_JOBS.search(text) and '"job_id"' in text)
    return text.lstrip().startswith("{") and bool(known)


def batches(file: RawFile) -> Iterator[Records]:
    """Yield all records, `BATCH` jobs at a time. Raises InputError for a file without a list of jobs."""
    rows: list[Row] = []
    rejects: list[Reject] = []
    count = before = 0
    documents = Documents(file.pieces(PIECE_BYTES), "jobs", kept="meta")
    for element in documents.elements():
        try:
            if element.wrong:
                raise ValueError(element.wrong)
            job = _job(element.value)
            steps, sluid = _listed(element.value, "steps"), _text(element.value.get("sluid"))
        except _BROKEN as error:
            rejects.append(Reject(count, f"not a job record: {_reason_of(error)}", element.text))
        else:
            rows.append((*job, count))
            for step in steps:
                try:
                    rows.append((*_step(step, element.value, sluid), count))
                except _BROKEN as error:
                    rejects.append(Reject(count, f"not a step record: {_reason_of(error)}", _plain(step)))
        count += 1
        if count == BATCH:
            yield _records(rows, rejects, before)
            rows, rejects, count, before = [], [], 0, before + count
    if not documents.lists:
        raise InputError(f"{file.path}: JSON without a list of jobs: dump with `sacct -a -D --json`")
    last = _records(rows, rejects, before)
    last.unproven = list(dict.fromkeys(name for meta in documents.kept for name in unproven(meta)))
    yield last


def proven() -> str:
    """Return PROVEN in words."""
    return " and ".join(f"{kind} {', '.join(versions)}" for kind, versions in PROVEN.items())


def unproven(meta: Any) -> list[str]:
    """Return the versions of Slurm and of the data_parser plugin that `meta` names and that are not in PROVEN."""
    meta = meta if isinstance(meta, dict) else {}
    slurm, plugin = meta.get("slurm") or meta.get("Slurm"), meta.get("plugin")
    release = slurm.get("release") if isinstance(slurm, dict) else None
    parser = (plugin.get("data_parser") or plugin.get("type")) if isinstance(plugin, dict) else None
    forms = {
        "Slurm": re.match(r"\d+\.\d+", str(release or "")),
        "data_parser": re.search(r"v\d+\.\d+\.\d+", str(parser or "")),
    }
    found = {"Slurm": release, "data_parser": parser}
    return [
        f"{kind} {str(text)[:60]}"
        for kind, text in found.items()
        if text and not ((form := forms[kind]) and form[0] in PROVEN[kind])
    ]


def _records(rows: list[Row], rejects: list[Reject], before: int) -> Records:
    kinds: dict[str, Any] = {**dict.fromkeys(COLUMNS, pl.String), "line": pl.Int64}
    return Records(pl.DataFrame(rows, schema=kinds, orient="row"), rejects, before)


def _listed(record: dict[str, Any], name: str) -> list[Any]:
    """Return a list of the record; [] where it is missing."""
    value = record.get(name)
    if value is None or isinstance(value, list):
        return value or []
    raise ValueError(f"{name} {shown(str(value))} is not a list")


def _plain(value: Any) -> str:
    """Return the value as JSON; '' where it is nested too deep."""
    try:
        return json.dumps(value)
    except RecursionError:
        return ""


def _texts(*row: str | None) -> tuple[str | None, ...]:
    """Return the row. Raises ValueError for half a surrogate pair, which is valid in JSON but not in UTF-8."""
    for text in row:
        if text and not text.isascii():
            text.encode()
    return row


def _reason_of(error: Exception) -> str:
    """Return the reason for a reject."""
    if isinstance(error, UnicodeEncodeError):
        return f"half a surrogate pair in {shown(error.object)}"
    if isinstance(error, KeyError):
        return f"no field {error}"
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _job(job: dict[str, Any]) -> tuple[str | None, ...]:
    """Convert a job's record. Id, state and times are required; other missing fields become blank."""
    if "job_state" in job and "time" not in job:
        raise ValueError("printed by squeue or scontrol, which omit ended jobs: dump with `sacct -a -D --json`")
    raw, times, tres = int(job["job_id"]), job["time"], job.get("tres") or {}
    return _texts(
        _printed(job), str(raw), _text(job.get("name")),
        _text(job.get("user")) or _text((job.get("association") or {}).get("user")), _text(job.get("account")),
        _text(job.get("partition")), _text(job.get("qos")), _state(job["state"]), _instant(times["submission"]),
        _instant(times.get("eligible")), _instant(times["start"]), _instant(times["end"]),
        _count(times.get("elapsed")), _clock(times.get("suspended")), _count(times.get("limit")),
        _count(job.get("allocation_nodes")), None, _tres(tres.get("requested")), _tres(tres.get("allocated")),
        _text(job.get("nodes")), _count(job.get("priority")), _flags(_listed(job, "flags"), job["state"]), None, None,
        _reason(job["state"]), _text(job.get("constraints")), _exit_code(job.get("exit_code"), job["state"]),
        _text(job.get("cluster")), _text(job.get("sluid")), _text(job.get("original_sluid")),
        _count(job.get("restart_cnt")), _text(job.get("failed_node")), _text(job.get("submit_line")), None, None,
    )  # fmt: skip


def _printed(job: dict[str, Any]) -> str:
    """Return the id as `sacct` prints it, also for an array's task and a component of a heterogeneous job."""
    array, het = job.get("array") or {}, job.get("het") or {}
    if array.get("job_id"):
        task = _number(array.get("task_id"))
        return f"{array['job_id']}_{task if task is not None else '[' + str(array.get('task') or '') + ']'}"
    if het.get("job_id"):
        return f"{het['job_id']}+{_number(het.get('job_offset')) or 0}"
    return str(int(job["job_id"]))


def _step(step: dict[str, Any], job: dict[str, Any], sluid: str | None) -> tuple[str | None, ...]:
    """Convert the record of one step of a job, which has that SLUID."""
    ident = step["step"]["id"]  # a text; in some versions an object
    name = str(ident["step_id"] if isinstance(ident, dict) else ident).rsplit(".", 1)[-1].lower()
    times, tres = step["time"], step.get("tres") or {}
    used = tres.get("requested") or {}  # TRESUsageIn
    most = next((t["count"] for t in used.get("max") or [] if t["type"] == "mem"), None)
    held = tres.get("allocated") or []
    return _texts(
        f"{_printed(job)}.{name}", f"{int(job['job_id'])}.{name}", _text(step["step"].get("name")), None, None, None,
        None, _state(step["state"]), None, None, _instant(times["start"]), _instant(times["end"]),
        _count(times.get("elapsed")), _clock(times.get("suspended")), None,
        _count((step.get("nodes") or {}).get("count")), _cpus(held), None, _tres(held), None, None, None,
        None if most is None else str(_number(most) or 0), _cpu_time(times.get("total")), None, None,
        _exit_code(step.get("exit_code"), step["state"]), None, sluid, None, None, None, None,
        _gpu_usage(used.get("total")), _gpu_usage(used.get("max")),
    )  # fmt: skip


def _number(value: Any) -> int | None:
    """Return a number, plain or as {"set": true, "infinite": false, "number": 5} (since 23.02); None if not set.

    A data_parser with `+complex` prints a plain number again, or INFINITE.
    """
    if isinstance(value, dict):
        value = value["number"] if value["set"] and not value["infinite"] else None
    if value in (None, "", INFINITE):
        return None
    number = int(value)
    return None if NO_VALUE <= number <= NO_VALUE + 1 or number < 0 else number


def _count(value: Any) -> str | None:
    number = _number(value)
    return None if number is None else str(number)


def _instant(value: Any) -> str | None:
    number = _number(value)
    return str(number) if number else None


def _clock(value: Any) -> str | None:
    """Format seconds as sacct prints a duration."""
    seconds = _number(value)
    if seconds is None:
        return None
    days, rest = divmod(seconds, 86_400)
    return f"{days}-{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def _cpu_time(value: Any) -> str | None:
    """Format {"seconds": 90, "microseconds": 24110} as sacct prints CPU time, to the millisecond."""
    seconds = _clock((value or {}).get("seconds"))
    thousandths = (_number((value or {}).get("microseconds")) or 0) // 1000
    return f"{seconds}.{thousandths:03d}" if seconds and thousandths else seconds


def _exit_code(value: Any, state: Any) -> str | None:
    """Format an exit code as `code:signal`; None where there is none, or where it cannot be trusted.

    `status` is a text in Slurm 22.05, which prints SUCCESS for failed jobs too, and later a list.
    """
    if not isinstance(value, dict) or (value.get("status") == "SUCCESS" and _state(state) != "COMPLETED"):
        return None
    signal = value.get("signal") or {}
    code, number = _number(value.get("return_code")), _number(signal.get("id", signal.get("signal_id")))
    return None if code is None and number is None else f"{code or 0}:{number or 0}"


def _text(value: Any) -> str | None:
    return str(value) if value not in (None, "") else None


def _state(value: Any) -> str | None:
    """Return the state as sacct prints it; `current` is a text up to 23.02, and later a list of the state and flags."""
    current = value["current"] if isinstance(value, dict) else value
    if isinstance(current, list):
        current = slurm_text.job_state([str(word) for word in current]) if current else None
    return _text(current)


def _reason(state: Any) -> str | None:
    return _text(state.get("reason")) if isinstance(state, dict) else None


def _flags(flags: list[Any], state: Any) -> str | None:
    """Return the flags of a job, and the words of its state that are not the state itself."""
    current = state.get("current") if isinstance(state, dict) else state
    others = [word for word in current if word != _state(current)] if isinstance(current, list) else []
    return ",".join(str(flag) for flag in (*flags, *others)) or None


def _tres(listed: list[dict[str, Any]] | None) -> str | None:
    """Format a list of TRES as sacct prints it; memory is in MiB. Values that are not set (energy) are left out."""
    parts = []
    for tres in listed or []:
        count = tres["count"]
        if count is None or int(count) >= 1 << 63:
            continue
        name = f"{tres['type']}/{tres['name']}" if tres.get("name") else tres["type"]
        parts.append(f"{name}={count}{'M' if tres['type'] == 'mem' else ''}")
    return ",".join(parts) or None


def _gpu_usage(listed: list[dict[str, Any]] | None) -> str | None:
    """Format the GPU usage in a list of TRES as sacct prints it: gres/gpuutil in percent, gres/gpumem in bytes."""
    return _tres([tres for tres in listed or [] if tres["type"] == "gres"])


def _cpus(listed: list[dict[str, Any]]) -> str | None:
    return next((_count(tres["count"]) for tres in listed if tres["type"] == "cpu"), None)

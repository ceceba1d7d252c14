"""The columns of sacct: their names, parsers of the columns that are read, and parsing a header line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from traces.errors import InputError
from traces.readers import plausible
from traces.readers.sacct import csv as sacct_csv
from traces.slurm import text as slurm_text

# From `sacct --helpformat`, Slurm 17.11 to 26.05, with older names; exports of the database add Dependency.
_NAMES = """
Account AdminComment AllocCPUS AllocGRES AllocNodes AllocTRES AssocID AveCPU AveCPUFreq AveDiskRead AveDiskWrite
AvePages AveRSS AveVMSize BlockID Cluster Comment Constraints ConsumedEnergy ConsumedEnergyRaw Container CPUTime
CPUTimeRAW DBIndex Dependency DerivedExitCode Elapsed ElapsedRaw Eligible End Exclusive ExitCode Extra FailedNode
Flags GID Group JobID JobIDRaw JobName Layout Licenses MaxDiskRead MaxDiskReadNode MaxDiskReadTask MaxDiskWrite
MaxDiskWriteNode MaxDiskWriteTask MaxPages MaxPagesNode MaxPagesTask MaxRSS MaxRSSNode MaxRSSTask MaxVMSize
MaxVMSizeNode MaxVMSizeTask McsLabel MinCPU MinCPUNode MinCPUTask NCPUS NNodes NodeList NTasks OriginalSLUID
OverSubscribe Partition Planned PlannedCPU PlannedCPURAW Priority QOS QOSRAW QOSREQ Reason ReqCPUFreq ReqCPUFreqGov
ReqCPUFreqMax ReqCPUFreqMin ReqCPUS ReqGRES ReqMem ReqNodes ReqReservation ReqTRES Reservation ReservationId Reserved
Restarts ResvCPU ResvCPURAW SegmentSize SLUID Start State StdErr StdIn StdOut Submit SubmitLine Suspended
SystemComment SystemCPU Timelimit TimelimitRaw TotalCPU TRESUsageInAve TRESUsageInMax TRESUsageInMaxNode
TRESUsageInMaxTask TRESUsageInMin TRESUsageInMinNode TRESUsageInMinTask TRESUsageInTot TRESUsageOutAve TRESUsageOutMax
TRESUsageOutMaxNode TRESUsageOutMaxTask TRESUsageOutMin TRESUsageOutMinNode TRESUsageOutMinTask TRESUsageOutTot UID
User UserCPU WCKey WCKeyID WorkDir
"""
NAMES = tuple(_NAMES.split())
_BY_LOWER = {name.lower(): name for name in NAMES}
# Columns of user text, which may contain the delimiter and line breaks; sacct does not escape them.
USER_TEXT = frozenset({
    "JobName", "Comment", "WorkDir", "SubmitLine", "AdminComment", "SystemComment", "Constraints", "Container",
    "Extra", "StdErr", "StdIn", "StdOut", "Reason", "WCKey",
})  # fmt: skip
BY_USERS = USER_TEXT - {"Reason", "AdminComment", "SystemComment"}  # that any user may write
TIMES = ("Submit", "Eligible", "Start", "End")
# Local times printed with other values of SLURM_TIME_FORMAT: a space for the T, fractions of a second, an offset from
# UTC. Polars' Rust uses the same pattern; [0-9] instead of \d, which matches every Unicode digit.
OTHER_TIME = (
    r"^((?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9])[T ]([0-2][0-9]:[0-5][0-9]:[0-5][0-9])(?:\.[0-9]{1,9})?"
    r"(?: ?(Z|[+-][0-2][0-9]:?[0-5][0-9]))?$"
)
EPOCH = r"^[0-9]{9,10}$"  # seconds since 1970, with SLURM_TIME_FORMAT=%s
_STATE = re.compile(r"[A-Z][A-Z0-9_]*\+?(?: by \S+)?|\?|")
# Values of Flags, in text and in JSON. Others are kept as text in jobs.other_flags.
STARTED_BY = {"SchedSubmit": "submit", "SchedMain": "main", "SchedBackfill": "backfill", "STARTED_ON_SUBMIT": "submit",
              "STARTED_ON_SCHEDULE": "main", "STARTED_ON_BACKFILL": "backfill"}  # fmt: skip
_FLAGS = frozenset({
    *STARTED_BY, "None", "StartReceived", "StartRecieved", "JobAltered",  # misspelled by 22.05
    "NONE", "NOT_SET", "CLEAR_SCHEDULING", "START_RECEIVED",
    "JOB_ALTERED", *slurm_text.BASE_STATES, *slurm_text.JOB_FLAGS, *slurm_text.QUIET_FLAGS,
})  # fmt: skip
NO_VALUE = 0xFFFFFFFE  # NO_VAL of slurm.h; INFINITE is one more


def is_time(text: str) -> None:
    """Raise ValueError for text that is neither a time nor one of Slurm's words for no time."""
    if text in slurm_text.NO_TIME or re.fullmatch(EPOCH, text):
        return
    match = re.fullmatch(OTHER_TIME, text)
    try:
        if match:
            datetime.fromisoformat(f"{match[1]}T{match[2]}")
            return
    except ValueError:
        pass  # 30 February
    raise ValueError(
        f"{text[:60]!r} is not YYYY-MM-DDTHH:MM:SS, seconds since 1970, or None / Unknown "
        "(dump with SLURM_TIME_FORMAT=standard or %s)"
    )


def state(text: str) -> str | None:
    """Return the base state; None for blank. Raises ValueError for text that is not a state."""
    if not _STATE.fullmatch(text):
        raise ValueError(f"{text!r} is not a job state")
    return slurm_text.parse_state(text) if text else None


def unknown_state(text: str) -> str | None:
    """Return the text of a state that Baton reads as UNKNOWN, except Slurm's own words for that; None for others."""
    return text if text not in ("?", "UNKNOWN") and slurm_text.parse_state(text) == "UNKNOWN" else None


def unknown_flags(text: str) -> str | None:
    """Return the flags that Baton does not know, joined by commas; None if it knows all."""
    return ",".join(flag for flag in text.split(",") if flag and flag not in _FLAGS) or None


def started_by(flags: str) -> str | None:
    """Return the scheduler pass that started the job, from sacct's Flags; None if they do not name it."""
    return next((STARTED_BY[flag] for flag in flags.split(",") if flag in STARTED_BY), None)


def _count(text: str) -> int | None:
    """Parse a count. Without --noconvert, sacct prints large counts as 20K; the two highest 32-bit values mean none."""
    if not text:
        return None
    match = re.fullmatch(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([KM]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is not a count")
    number = round(float(f"{match[1]}.{match[2] or 0}") * {"": 1, "K": 1000, "M": 1_000_000}[match[3]])
    if number >= 1 << 32:
        raise ValueError(f"{text!r} does not fit in 32 bits")
    return None if number >= NO_VALUE else number


def _duration(text: str) -> float | None:
    if text in {"", "INVALID", "Unknown"}:
        return None
    return slurm_text.parse_duration_s(text)


def _one_line(text: str) -> None:
    if "\n" in text or "\t" in text:
        raise ValueError("a line break or tab in a column that does not hold user text")


def _name(text: str) -> None:
    if len(text) > 80 or not re.fullmatch(r"(?:[^\s|]+(?: [^\s|]+)*)?", text):
        raise ValueError(f"{text[:80]!r} is not a name")


def tres_gpus(text: str) -> int | None:
    """Return the GPUs of a TRES text, as `slurm_text.tres_gpus`. Raises ValueError for an implausible number."""
    return _plausible_gpus(slurm_text.tres_gpus(text))


def gres_gpus(text: str) -> int | None:
    """Return the GPUs of an old GRES text, as `slurm_text.gres_gpus`. Raises ValueError for an implausible number."""
    return _plausible_gpus(slurm_text.gres_gpus(text))


def _plausible_gpus(gpus: int | None) -> int | None:
    plausible.check_plausible("gpus", gpus or 0)
    return gpus


def memory(text: str) -> tuple[float, str] | None:
    """Return (MiB, per) as `slurm_text.parse_memory_mib` does. Raises ValueError for an implausible size."""
    parsed = slurm_text.parse_memory_mib(text)
    plausible.check_plausible("requested_mem_mib", parsed[0] if parsed else 0)
    return parsed


def _limit(text: str) -> int | None:
    limit = slurm_text.parse_limit_s(text)
    plausible.check_plausible("limit_s", limit or 0)
    return limit


# Parser of each column that is read; it raises ValueError for invalid text. Only numbers and states are used further.
FORMS: dict[str, Callable[[str], Any]] = {
    "JobID": slurm_text.parse_job_id,
    "JobIDRaw": slurm_text.parse_job_id,
    **dict.fromkeys(TIMES, is_time),
    **dict.fromkeys(("Elapsed", "Suspended", "TotalCPU"), _duration),
    "ElapsedRaw": _count,
    **dict.fromkeys(("Timelimit", "TimelimitRaw"), _limit),
    "State": state,
    **dict.fromkeys(("ExitCode", "DerivedExitCode"), slurm_text.parse_exit_code),
    **dict.fromkeys(
        ("NNodes", "AllocNodes", "ReqNodes", "NCPUS", "AllocCPUS", "ReqCPUS", "Priority", "NTasks", "Restarts"), _count
    ),
    **dict.fromkeys(("AllocTRES", "ReqTRES"), tres_gpus),
    **dict.fromkeys(("AllocGRES", "ReqGRES"), gres_gpus),
    "ReqMem": memory,
    "MaxRSS": slurm_text.parse_rss_kib,
    "NodeList": slurm_text.expand_nodes,
    **dict.fromkeys(("User", "Account", "Partition", "UID", "Group", "GID", "Cluster"), _name),
}


# Columns whose text a canonical column holds as printed; a column with a parser in FORMS must also be valid.
PRINTED: dict[str, str] = {
    "JobName": "job_name",
    "Account": "account",
    "Partition": "partition",
    "QOS": "qos",
    "Reason": "reason",
    "Constraints": "features_asked",
    "Dependency": "dependency",
    "FailedNode": "failed_node",
    "SubmitLine": "submit_line",
}
GPU_USAGE = ("TRESUsageInTot", "TRESUsageInAve", "TRESUsageInMax")
# Not read: Planned (Reserved) is Start minus Eligible; QOSREQ is a list of which QOS is the one that counts; of
# Exclusive and ReqReservation, AllocTRES and Reason hold what analyses need.
READ = frozenset(FORMS) | frozenset(PRINTED) | {"Flags", "SLUID", "OriginalSLUID", *GPU_USAGE}
# Patterns that help to find where a column begins in a record that user text broke. They do not apply to a whole
# record: an odd value in one of these columns is no reason to reject it.
_USUAL_FORMS = (
    (r"State", r"[A-Z_]+\+?( by \S+)?|\?|"),
    (r"Elapsed|Suspended", r"(\d+-)?\d\d:\d\d:\d\d|INVALID"),  # secs2time_str of Slurm, never empty
    (r"(Original)?SLUID", r"(s[0-9A-Z]+)?"),
    (r"JobName", r"(?s).{0,1024}"),  # MAX_JOB_NAME of slurmctld
    (r"User|Account|Partition|UID|GID|Cluster", r"\S*"),
    (r"NodeList", r"None assigned|[\w.,:\[\]-]*"),
    (r"(Req|Alloc)TRES", r"([\w/:.-]+=[^,|\s\"]*(,|$))*"),
    (r"(Max|Min)\w+Task|NTasks|\w+RAW|AssocID|DBIndex|ReservationId|Restarts|WCKeyID", r"\d*"),
    (r"(Max|Min)\w+Node|Layout|McsLabel|ReqCPUFreq\w*|BlockID", r"[\w.:-]*"),
    (r"(Ave|Max)(CPUFreq|Disk\w+|Pages|RSS|VMSize)|ConsumedEnergy(Raw)?", r"(\d+(\.\d+)?[KMGTPE]?)?"),
    (r"(Ave|Min|System|User)CPU|CPUTime|ResvCPU|PlannedCPU|Reserved|Planned", r"([\d:.-]*|INVALID)"),
    (r"TRESUsage\w+", r"([\w/:.-]+=[^,|\s]*(,|$))*"),
    (r"Flags", r"([A-Z][A-Za-z_]*(,|$))*"),
    (r"Reason", r"[\w .,:()\[\]/-]*"),  # Slurm's own reasons
    (r"Dependency", r"[\w,:?()*+-]*"),
)


def check_usual(column: str, text: str) -> None:
    """Raise ValueError where the text does not have the column's usual form."""
    for names, pattern in _USUAL_FORMS:
        if re.fullmatch(names, column):
            if not re.fullmatch(pattern, text):
                raise ValueError(f"{text!r} does not have the form of {column}")
            return


def odd_value(named: Iterable[tuple[str, str]]) -> str | None:
    """Describe the first of the given (column, text) pairs with an invalid text; None if all are valid."""
    for name, text in named:
        check = form(name)
        try:
            if check is not None:
                check(text)
        except ValueError as error:
            return f"column {name}: {str(error)[:300]}"
    return None


def form(column: str) -> Callable[[str], Any] | None:
    """Return the parser of a column; None for user text, which may be anything."""
    return None if column in USER_TEXT else FORMS.get(column, _one_line)


def canonical(name: str) -> str | None:
    """Return sacct's spelling of a column name; None for an unknown name.

    The name may be in any case, end with a width such as `%20`, or be cut short by a fixed width.
    """
    plain = name.strip().split("%", 1)[0].lower()
    if plain in _BY_LOWER:
        return _BY_LOWER[plain]
    # A fixed-width header cuts names to the width of their column: TimelimitR.
    fits = [full for lower, full in _BY_LOWER.items() if len(plain) >= 8 and lower.startswith(plain)]
    return fits[0] if len(fits) == 1 else None


def from_fields(fields: tuple[str, ...]) -> list[str]:
    """Return the column names of `--fields`. Raises InputError for an unknown or repeated name."""
    names = []
    for name in fields:
        full = canonical(name)
        if full is None:
            raise InputError(f"--fields: {name!r} is not a column of sacct: known are {', '.join(NAMES)}")
        names.append(full)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"--fields: {', '.join(repeated)} is given twice: name each column once")
    return names


def from_header(line: str, delimiter: str | None) -> tuple[list[str], str, bool] | None:
    """Parse a header line into (columns, delimiter, whether a delimiter ends the line); None if it is not a header.

    An unknown name is kept unchanged; its column is not read. If no delimiter is given, the text between the first two
    known names is used. Names of a CSV may be quoted, and the first name may be blank (a data frame's index).
    """
    if delimiter is None:
        match = re.match(r'[\s",]*([A-Za-z]+)"?([^A-Za-z0-9_%"]+)"?[A-Za-z]', line)
        if match is None or canonical(match[1]) is None or (not match[2].strip(" ")):
            return None
        delimiter = match[2]
    parts = sacct_csv.fields(line) if delimiter == "," else line.split(delimiter)
    trailing = len(parts) > 1 and parts[-1] == ""
    parts = parts[:-1] if trailing else parts
    names = [canonical(part) or part for part in parts]
    known = [name for name in names if name in FORMS or name in NAMES]
    if len(known) < 2 or len(known) < 0.6 * len(names):
        return None
    # Of a column that is printed twice, the first is read.
    return [n if n not in names[:i] else f"{n} ({i})" for i, n in enumerate(names)], delimiter, trailing


_WHOLE = (("JobID", "JobIDRaw"), ("Submit",), ("Start",), ("End", "ElapsedRaw", "Elapsed"))
# Columns that every dump must have: the job's id, and how it ended. The state is inferred from times if a dump has only
# those. sacct's default columns hold no times, but they hold the end state.
_NEEDED = (("JobID", "JobIDRaw"), ("State", "Start"), ("State", "End", "ElapsedRaw", "Elapsed"))


def is_enough(columns: Sequence[str]) -> bool:
    """Return whether the columns record the job, its submission, its start and its duration.

    A header between records must have all of these: a line with fewer of them could be user text.
    """
    return all(any(name in columns for name in choices) for choices in _WHOLE)


def check_needed(columns: list[str], where: str) -> None:
    """Raise InputError where the columns do not record the job's id or how it ended."""
    if "START_TIME" in columns or "SUBMIT_TIME" in columns:
        raise InputError(f"{where}: printed by squeue, which omits ended jobs: dump with `sacct -a -D -P`")
    for choices in _NEEDED:
        if not any(name in columns for name in choices):
            known = ", ".join(name for name in columns if name in NAMES)
            raise InputError(
                f"{where}: column {' or '.join(choices)} is missing: the file has {known}; "
                "dump with `sacct -a -D -P --format=JobID,JobIDRaw,JobName,User,Partition,State,Submit,Eligible,Start,"
                "End,ElapsedRaw,TimelimitRaw,ExitCode,NNodes,ReqTRES,AllocTRES,NodeList`"
            )

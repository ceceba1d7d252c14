"""Parsers of Slurm's text formats, one function a format: durations, limits, memory, TRES, states, job ids, node lists.

Standard library only, because the agent reads the same formats from a live Slurm. Every function takes the text as
Slurm prints it. For text in an unknown format it raises ValueError, which names the text. The manual pages of sacct,
sbatch and squeue define the formats.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

BASE_STATES = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PENDING", "PREEMPTED", "REQUEUED", "RESIZING", "REVOKED", "RUNNING", "SUSPENDED", "TIMEOUT",
)  # fmt: skip
# Flags that sacct and squeue print in place of the base state, and the base state that they imply.
FLAG_STATES = {
    "COMPLETING": "RUNNING", "CONFIGURING": "RUNNING", "STAGE_OUT": "RUNNING", "SIGNALING": "RUNNING",
    "EXPEDITING": "PENDING", "RESV_DEL_HOLD": "PENDING", "SPECIAL_EXIT": "PENDING",
    "REQUEUE_FED": "REQUEUED", "REQUEUE_HOLD": "REQUEUED", "STOPPED": "SUSPENDED",
}  # fmt: skip
# squeue and sacct print one word (job_state_string of slurm_protocol_defs.c): the first of these flags, else the state.
JOB_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "EXPEDITING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
    "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING",
)  # fmt: skip
# Flags of a state that JSON prints and no command shows in its place.
QUIET_FLAGS = ("LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL", "UPDATE_DB")
COMPACT_STATES = {
    "BF": "BOOT_FAIL", "CA": "CANCELLED", "CD": "COMPLETED", "CF": "RUNNING", "CG": "RUNNING", "DL": "DEADLINE",
    "F": "FAILED", "NF": "NODE_FAIL", "OOM": "OUT_OF_MEMORY", "PD": "PENDING", "PR": "PREEMPTED", "R": "RUNNING",
    "RD": "PENDING", "RF": "REQUEUED", "RH": "REQUEUED", "RQ": "REQUEUED", "RS": "RESIZING", "RV": "REVOKED",
    "S": "SUSPENDED", "SE": "PENDING", "SI": "RUNNING", "SO": "RUNNING", "ST": "SUSPENDED", "TO": "TIMEOUT",
}  # fmt: skip
# Texts that Slurm prints for a time that is unknown or has not come yet.
NO_TIME = frozenset({"", "None", "Unknown", "N/A", "NONE", "0", "4294967295"})
NO_LIMIT = frozenset({"", "UNLIMITED", "Partition_Limit", "INFINITE", "NOT_SET", "None", "N/A"})

# Words for "no limit" on Baton's command line, and the formats of durations there.
ENDLESS = frozenset({"UNLIMITED", "INFINITE"})
SPAN_FORMS = "write 48h, 30m, 2d or 2-00:00:00"
_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_NUMBER = r"\d+(?:\.\d+)?"
_PLAIN = re.compile(_NUMBER, re.ASCII)
_SPAN_PART = re.compile(rf"({_NUMBER})([smhd])", re.ASCII)
_SPAN = re.compile(rf"(?:{_SPAN_PART.pattern})+", re.ASCII)

_DURATION = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2})(?:\.(\d{1,6}))?")
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([KMGTPE]?)B?([nc]?)", re.IGNORECASE)
_GRES_GPU = re.compile(
    r"(?:^|[,|])(?:PER_NODE:|PER_JOB:|PER_TASK:|PER_SOCKET:)?(?:gres[:/])?gpu(?::([^:=,()|]+))?(?:[:=](\d+))?"
)
_JOB_ID = re.compile(
    r"(?P<job>\d+)(?:_(?:(?P<task>\d+)|\[(?P<range>[^\]]*)\]?))?(?:\+(?P<het>\d+))?(?:\.(?P<step>[A-Za-z0-9_+.]+))?"
)
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")
_SCALE_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3, "E": 1024.0**4}
MOST_NODES = 100_000  # in one node list; more is an attack or a fault


@dataclass(frozen=True)
class JobId:
    """The parts of a job id. `pending` is the text in the brackets of an array's pending tasks."""

    job: int
    task: int | None = None
    pending: str | None = None
    het: int | None = None
    step: str | None = None


def _shown(text: str) -> str:
    """Return the text in quotes for a message, cut to 80 characters."""
    return repr(text if len(text) <= 80 else f"{text[:79]}…")


def parse_duration_s(text: str) -> float:
    """Parse `[DD-[HH:]]MM:SS[.mmm]` into seconds. Raises ValueError for another format."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"duration {_shown(text)} is not [DD-[HH:]]MM:SS")
    days, hours, minutes, seconds, fraction = match.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes) * 60 + int(seconds)
    return whole + (float(f"0.{fraction}") if fraction else 0.0)


def parse_limit_s(text: str) -> int | None:
    """Parse a time limit (`D-HH:MM:SS` or plain minutes) into seconds; None for UNLIMITED, Partition_Limit, blank."""
    text = text.strip()
    if text in NO_LIMIT:
        return None
    if text.isascii() and text.isdigit():
        return int(text) * 60
    match = re.fullmatch(r"(\d{1,6})-(\d{1,2})(?::(\d{1,2}))?", text)  # D-HH and D-HH:MM, as sbatch takes them
    if match:
        return int(match[1]) * 86_400 + int(match[2]) * 3_600 + int(match[3] or 0) * 60
    return int(parse_duration_s(text))


def parse_span_s(text: str, plain_s: float = 1.0) -> float | None:
    """Parse a duration on a command line into seconds; None for UNLIMITED. Raises ValueError for another format.

    Accepts `48h`, `30m`, `2d`, `90s`, combinations such as `1d12h`, and Slurm's formats with a colon or a dash:
    `2-00:00:00`, `2-0`, `48:00` (minutes and seconds). A plain number counts in units of `plain_s` seconds.
    """
    text = text.strip()
    if text.upper() in ENDLESS:
        return None
    if ":" in text or "-" in text[1:]:
        try:
            return float(parse_limit_s(text) or 0)
        except ValueError:
            raise ValueError(f"duration {_shown(text)} is not understood; {SPAN_FORMS}") from None
    if _PLAIN.fullmatch(text):
        return float(text) * plain_s
    if not _SPAN.fullmatch(text):
        raise ValueError(f"duration {_shown(text)} is not understood; {SPAN_FORMS}")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _SPAN_PART.findall(text))


def parse_memory_mib(text: str) -> tuple[float, str] | None:
    """Parse a memory size into (MiB, per): 'n' per node, 'c' per CPU, '' in total. A size without a unit is in MiB.

    None for blank and for a 0, which means unset.
    """
    text = text.strip()
    if text in {"", "0", "0n", "0c", "?"}:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"memory {_shown(text)} is not a number with K, M, G, T or P")
    return float(match[1]) * _SCALE_MIB[match[2].upper()], match[3].lower()


def parse_rss_kib(text: str) -> int | None:
    """Parse a memory usage (`13633728K`, `4.50G`) into KiB; None for blank. Without a unit it is in bytes."""
    text = text.strip()
    if not text:
        return None
    match = _SIZE.fullmatch(text)
    if match is None or match[3]:
        raise ValueError(f"size {_shown(text)} is not a number with K, M, G, T or P")
    number, unit = float(match[1]), match[2].upper()
    return int(number / 1024) if not unit else int(number * _SCALE_MIB[unit] * 1024)


def parse_tres(text: str) -> dict[str, str]:
    """Parse `cpu=8,gres/gpu:a100=4,mem=64G` into a dictionary; {} for blank. Raises ValueError without '='."""
    result: dict[str, str] = {}
    for part in filter(None, text.strip().split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(f"TRES {_shown(text)}: {_shown(part)} is not name=value")
        result[name] = value
    return result


def tres_gpus(text: str) -> int | None:
    """Return the GPUs of a TRES text: gres/gpu, else the sum over GPU types (both count the same GPUs). None: blank."""
    tres = parse_tres(text)
    if not tres:
        return None
    if "gres/gpu" in tres:
        return _count(tres["gres/gpu"], text)
    return sum(_count(value, text) for name, value in tres.items() if name.startswith("gres/gpu:"))


def tres_gpu_types(text: str) -> str | None:
    """Return the GPU types of a TRES text, joined by |; None without a type."""
    types = [name.removeprefix("gres/gpu:") for name in parse_tres(text) if name.startswith("gres/gpu:")]
    return "|".join(types) or None


def gres_gpus(text: str) -> int | None:
    """Return the GPUs of an old GRES text: `gpu:4`, `gpu:a100:4(IDX:0-3)`, `PER_NODE:gpu:8`. None without GPUs."""
    total, names_gpus = 0, False
    for kind, count in _GRES_GPU.findall(re.sub(r"\([^)]*\)", "", text)):
        names_gpus = True
        total += int(count) if count else int(kind) if kind.isdigit() else 1
    return total if names_gpus else None


def gres_gpu_types(text: str) -> list[str]:
    """Return the distinct GPU types of a GRES text: ['a100'] for `gpu:a100:4(S:0-1)`, [] for `gpu:4`."""
    kinds = (kind for kind, _ in _GRES_GPU.findall(re.sub(r"\([^)]*\)", "", text)))
    return list(dict.fromkeys(kind for kind in kinds if kind and not kind.isdigit()))


def _count(value: str, text: str) -> int:
    if not value.isdigit():
        raise ValueError(f"TRES {_shown(text)}: {_shown(value)} is not a count")
    return int(value)


def parse_state(text: str) -> str:
    """Return the base state of a state that sacct or squeue prints, compact or not; UNKNOWN for any other text.

    The user in `CANCELLED by 1000` is dropped. A cut state such as `OUT_OF_ME+` is completed if one base state fits.
    """
    word = text.strip().split(" ", 1)[0].split(",", 1)[0].upper()
    if word in BASE_STATES:
        return word
    if word in FLAG_STATES:
        return FLAG_STATES[word]
    if word in COMPACT_STATES:
        return COMPACT_STATES[word]
    if word.endswith("+") and len(word) > 3:
        names = [*BASE_STATES, *FLAG_STATES]
        fits = {FLAG_STATES.get(name, name) for name in names if name.startswith(word[:-1])}
        if len(fits) == 1:
            return fits.pop()
    return "UNKNOWN"


def job_state(words: Sequence[str]) -> str:
    """Return the word that squeue and sacct print for a state and its flags, which JSON lists in any order.

    Of unknown words, the first one counts if the list holds neither a base state nor a known flag. Raises ValueError
    for an empty list.
    """
    if not words:
        raise ValueError("a job without a state")
    shown = (*(flag for flag in JOB_FLAGS if flag in words), *(word for word in words if word in BASE_STATES))
    return next(iter((*shown, *words)))


def parse_job_id(text: str) -> JobId:
    """Parse a job id: `123`, `123_7`, `123_[4-10%2]` (also cut short), `123+1`, each with an optional `.step`."""
    match = _JOB_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"job id {_shown(text)} is not N, N_T, N_[...], N+H or one of these with .STEP")
    task, het = match["task"], match["het"]
    return JobId(
        int(match["job"]), int(task) if task else None, match["range"], int(het) if het else None, match["step"]
    )


def parse_exit_code(text: str) -> tuple[int | None, int | None]:
    """Parse `code:signal` into (code, signal); (None, None) for blank."""
    if not text.strip():
        return None, None
    code, colon, signal = text.strip().partition(":")
    if not (code.isdigit() and (signal.isdigit() or not colon)):
        raise ValueError(f"exit code {_shown(text)} is not code:signal")
    return int(code), int(signal) if colon else 0


def expand_nodes(text: str) -> list[str]:
    """Expand a node list such as `cpn-f13-03-[01-02],cpn-f15` to its nodes; a name may have several brackets.

    [] for blank and `None assigned`. Raises ValueError for unbalanced brackets and for a descending range.
    """
    text = text.strip()
    if text in {"", "None assigned", "None", "(null)"}:
        return []
    if "[" not in text and "," not in text and "]" not in text:
        return [text]
    nodes: list[str] = []
    for part in _split_outside_brackets(text):
        nodes.extend(_expand_one(part, text, MOST_NODES - len(nodes)))
    return nodes


def _split_outside_brackets(text: str) -> list[str]:
    if (
        text.count("[") == text.count("]") == 1
        and text.index("[") < text.index("]") == len(text) - 1
        and "," not in (text[: text.index("[")])
    ):
        return [text]
    parts, depth, begin = [], 0, 0
    for index, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"node list {_shown(text)}: brackets do not match")
        if char == "," and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    if depth:
        raise ValueError(f"node list {_shown(text)}: a bracket is not closed")
    return [part for part in (*parts, text[begin:]) if part]


def _expand_one(part: str, text: str, room: int) -> list[str]:
    name, bracket, rest = part.partition("[")
    if bracket and rest.find("]") == len(rest) - 1:  # fast path: one bracket, at the end
        return [name + number for number in _numbers(rest[:-1], text, room)]
    names = [""]
    for piece in re.split(r"(\[[^\]]*\])", part):
        if not piece.startswith("["):
            names = [name + piece for name in names]
            continue
        numbers = _numbers(piece[1:-1], text, room)
        if len(names) * len(numbers) > room:
            raise ValueError(f"node list {_shown(text)}: over {MOST_NODES} nodes")
        names = [name + number for name in names for number in numbers]
    return names


def _numbers(ranges: str, text: str, room: int) -> list[str]:
    numbers: list[str] = []
    for item in ranges.split(","):
        match = _RANGE.fullmatch(item)
        if match is None:
            raise ValueError(f"node list {_shown(text)}: {_shown(item)} is not a number or a range")
        first, last = match[1], match[2] or match[1]
        if int(last) < int(first) or int(last) - int(first) + len(numbers) >= room:
            raise ValueError(
                f"node list {_shown(text)}: range {_shown(item)} is descending or has over {MOST_NODES} nodes"
            )
        if first == last:
            numbers.append(first)
        else:
            numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers

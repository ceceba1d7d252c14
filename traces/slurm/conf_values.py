"""Parsers of the value formats in slurm.conf and in dumps of sacctmgr and scontrol, one function a format.

Each takes the text and returns the value. For text in another format it raises ValueError with the allowed format.
None means "no limit". Source: the manual pages slurm.conf(5), sacctmgr(1), scontrol(1).
"""

from __future__ import annotations

import re

from traces.schema import MOST

NO_LIMIT = frozenset({"UNLIMITED", "INFINITE", "NONE", "-1"})
CRED_EXPIRE_S = 120  # Slurm's default
_SCALE = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5}
_TIME = re.compile(r"(?:(\d{1,6})-(\d{1,3})(?::(\d{1,2}))?(?::(\d{1,2}))?)|(?:(\d{1,8})(?::(\d{1,4}))?(?::(\d{1,2}))?)")
_WEIGHT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{0,15})?|\.[0-9]{1,15})([KMGTP]?)", re.IGNORECASE)


def count(text: str) -> int:
    """Parse a whole number of at least 0."""
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise ValueError("a whole number of at least 0 is allowed")
    return int(text)


def count_or_unlimited(text: str) -> int | None:
    """Parse a whole number; None for UNLIMITED."""
    return None if text.upper() in NO_LIMIT else count(text)


def decimal(text: str) -> float:
    """Parse a number of at least 0, such as 0.5."""
    if not re.fullmatch(r"\d{1,15}(\.\d{0,15})?|\.\d{1,15}", text):
        raise ValueError("a number of at least 0 is allowed")
    return float(text)


def yes_no(text: str) -> bool:
    """Parse YES or NO, in any spelling that Slurm accepts."""
    word = text.upper()
    if word in {"YES", "Y", "TRUE", "T", "UP", "1"}:
        return True
    if word in {"NO", "N", "FALSE", "F", "DOWN", "0"}:
        return False
    raise ValueError("YES or NO is allowed")


def time_s(text: str) -> int | None:
    """Parse a time limit into seconds; None for no limit.

    The formats are those of slurm.conf and sbatch (slurm.conf(5), MaxTime): `minutes`, `minutes:seconds`,
    `hours:minutes:seconds`, `days-hours[:minutes[:seconds]]`.
    """
    if text.upper() in NO_LIMIT:
        return None
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("minutes, minutes:seconds, hours:minutes:seconds, days-hours:minutes or UNLIMITED is allowed")
    days, day_hours, day_minutes, day_seconds, first, second, third = match.groups()
    if days is not None:
        return int(days) * 86_400 + int(day_hours) * 3_600 + int(day_minutes or 0) * 60 + int(day_seconds or 0)
    if third is not None:
        return int(first) * 3_600 + int(second) * 60 + int(third)
    return int(first) * 60 + int(second or 0)


def period_s(text: str) -> int:
    """Parse a time as `time_s` does, but require a finite one: a half-life, an age, a calculation period."""
    seconds = time_s(text)
    if seconds is None:
        raise ValueError("a finite time is required")
    return seconds


def exempt_s(text: str) -> int:
    """Parse a time as `time_s` does; -1 switches the exemption off, which equals 0."""
    return time_s(text) or 0


def minutes_s(text: str) -> int | None:
    """Parse a number of minutes into seconds; None for UNLIMITED."""
    minutes = count_or_unlimited(text)
    return None if minutes is None else minutes * 60


def words(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list into words in lower case; Slurm ignores the case of accounts, QOS and flags."""
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def weights(text: str) -> dict[str, float]:
    """Parse `cpu=100,gres/gpu=1000` into weights by TRES name in lower case."""
    return {name: decimal(value) for name, value in _named(text)}


def billing_weights(text: str) -> dict[str, float]:
    """Parse `CPU=1.0,Mem=0.25G,GRES/gpu=2.0` into weights by TRES name in lower case.

    The weight of memory is per MiB; in the text `0.25G` means 0.25 per GiB.
    """
    result = {}
    for name, value in _named(text):
        match = _WEIGHT.fullmatch(value)
        if match is None:
            raise ValueError("TRES=weight pairs, such as CPU=1.0,Mem=0.25G, are allowed")
        per = _SCALE[match[2].upper()] / (1024**2 if name == "mem" and match[2] else 1)
        result[name] = float(match[1]) / per
    return result


def limits(text: str) -> dict[str, int]:
    """Parse `cpu=64,gres/gpu=8,mem=500G,node=4` into limits by TRES name in lower case.

    Memory is in MiB; -1 removes a limit.
    """
    result = {}
    for name, value in _named(text):
        if value == "-1":
            continue
        match = _WEIGHT.fullmatch(value)
        if match is None:
            raise ValueError("TRES=count pairs, such as cpu=64,gres/gpu=8, are allowed")
        scale = _SCALE[match[2].upper()] / (1024**2 if name == "mem" and match[2] else 1)
        result[name] = int(float(match[1]) * scale)
    return result


def _named(text: str) -> list[tuple[str, str]]:
    pairs = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise ValueError("a comma-separated list of TRES=value is allowed")
        pairs.append((name.strip().lower(), value.strip()))
    return pairs


def gpus(text: str) -> dict[str, int]:
    """Parse the GPUs of a node's Gres by type ('' without a type): `gpu:a100:4`, `gpu:4(S:0-1)`, `gpu`.

    Other resources are left out.
    """
    gpus_of_type: dict[str, int] = {}
    if text.lower() in {"(null)", "none", "n/a"}:
        return gpus_of_type
    for part in filter(None, re.sub(r"\([^)]*\)", "", text).split(",")):
        name, *rest = [word for word in part.strip().split(":") if word != "no_consume"]
        if name.lower() != "gpu":
            continue
        number = count(rest.pop()) if rest and rest[-1].isdigit() else 1
        if len(rest) > 1:
            raise ValueError("gpu[:type][:count] is allowed")
        kind = rest[0].lower() if rest else ""
        gpus_of_type[kind] = gpus_of_type.get(kind, 0) + number
        if gpus_of_type[kind] > MOST["gpus"]:
            raise ValueError(f"at most {MOST['gpus']:,} GPUs are allowed")
    return gpus_of_type


def preempt_mode(text: str) -> tuple[str, ...]:
    """Parse OFF, CANCEL, REQUEUE or SUSPEND, optionally with GANG, WITHIN or PRIORITY, into lower case."""
    modes = words(text)
    known = ("off", "cancel", "requeue", "suspend", "gang", "within", "priority", "cluster", "disabled")
    if not modes or any(mode not in known for mode in modes):
        raise ValueError(f"{', '.join(known[:-1]).upper()} is allowed")
    return modes


def oversubscribe(text: str) -> str:
    """Parse `no`, `exclusive`, `yes` or `force`, the last two with an optional `:count`."""
    word = text.lower()
    if not re.fullmatch(r"no|exclusive|(yes|force)(:\d{1,5})?", word):
        raise ValueError("NO, EXCLUSIVE, YES[:count] or FORCE[:count] is allowed")
    return word


def exclusive(text: str) -> str:
    """Parse the Exclusive of a partition (26.05): no, node, user or topo."""
    if text.lower() not in ("no", "node", "user", "topo"):
        raise ValueError("NO, NODE, USER or TOPO is allowed")
    return text.lower()


def cred_expire_s(text: str) -> int:
    """Parse the cred_expire of AuthInfo in seconds: a requeued job waits that long. Slurm refuses less than 5 s."""
    given = next((word.partition("=")[2] for word in words(text) if word.startswith("cred_expire=")), "")
    seconds = count(given) if given else CRED_EXPIRE_S
    return seconds if seconds >= 5 else CRED_EXPIRE_S


def partition_state(text: str) -> str:
    """Parse a partition state: up, down, drain or inactive."""
    for state in ("up", "down", "drain", "inactive"):
        if text.lower().startswith(state):
            return state
    raise ValueError("UP, DOWN, DRAIN or INACTIVE is allowed")


def node_state(text: str) -> str:
    """Parse a node state into lower-case words joined by '+': unknown, idle, idle+drain, future, ..."""
    word = text.lower().rstrip("*~#!%$@^-")
    if not re.fullmatch(r"[a-z_]+(\+[a-z_]+)*", word):
        raise ValueError("UNKNOWN, IDLE, DOWN, DRAIN, FAIL, CLOUD or FUTURE is allowed")
    return word

"""Reader of `baton-agent`'s decision log `decisions.jsonl`: its decisions for a chain of jobs, and their outcomes.

Format: docs/agent.md, log_version 1. Each line is a record. Equal lines are duplicates, because a restarted agent may
write a line again. A line that was cut off is rejected; the agent continues on a new line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from traces import schema
from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, Reject, shown
from traces.readers.plausible import check_plausible
from traces.readers.raw_text import UNREADABLE, numbered_lines
from traces.store.frames import empty
from traces.units import HOUR_S
from traces.visible import storable

LOG_VERSION = 1
EPOCH_UTC = datetime(1970, 1, 1)
MOST_COUNT = (1 << 31) - 1  # upper bound of links, attempts and exit statuses, far above any real value
_BEGIN = re.compile(rb'[\s\xef\xbb\xbf]*\{\s*"log_version"\s*:')
_CHAIN = re.compile(r"[0-9a-f]{8}")
DECISION = "decision"

Line = Mapping[str, Any]
Row = dict[str, Any]


class AgentLog:
    """The reader of the agent's decision log."""

    name = "agent"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the first line begins with `log_version`, as every line of the agent does."""
        return _BEGIN.match(head) is not None

    def read(self, file: RawFile) -> Parsed:
        """Read all lines. Raises InputError where the file cannot be read."""
        parsed = Parsed()
        assert file.tables is not None
        seen: set[bytes] = set()
        try:
            with file.open() as stream:
                for lines in numbered_lines(stream, 1, file.path):
                    parsed.records += len(lines)
                    for table, rows in _rows(parsed, lines, seen).items():
                        file.tables.write(table.name, pl.DataFrame(rows, schema=_kinds(table), orient="row"))
        except UNREADABLE as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        return parsed


def _kinds(table: schema.Table) -> dict[str, pl.DataType]:
    return {name: kind for name, kind in empty(table).schema.items() if name not in ("cluster", "trace_sha256")}


def _rows(parsed: Parsed, lines: pl.DataFrame, seen: set[bytes]) -> dict[schema.Table, list[Row]]:
    """Return rows by table from (line, raw); count them and record rejects in `parsed`.

    `seen` holds the digests of the lines before; this function adds to it.
    """
    rows: dict[schema.Table, list[Row]] = {schema.AGENT_DECISIONS: [], schema.AGENT_EVENTS: []}
    for number, raw in lines.iter_rows():
        digest = hashlib.sha256(raw.encode()).digest()
        if digest in seen:
            parsed.duplicates += 1
            continue
        seen.add(digest)
        try:
            line = _Line(raw)
            is_decision = line.event == DECISION
            row = _decision(line) if is_decision else EVENTS[line.event](line) | {"event": line.event}
        except ValueError as error:
            parsed.rejects.append(Reject(number, str(error), raw))
            continue
        about = {"chain": line.chain, "time_utc": line.time_utc, "line": number}
        rows[schema.AGENT_DECISIONS if is_decision else schema.AGENT_EVENTS].append(row | about)
        parsed.samples += 1
    return rows


class _Line:
    """One JSON object of the log. Every method raises a one-line ValueError for a value that the agent never writes."""

    def __init__(self, raw: str) -> None:
        self._values = _object(raw)
        version = self._values.get("log_version")
        if version != LOG_VERSION or isinstance(version, bool):
            raise ValueError(f"log_version is {_shown_value(version)}, not {LOG_VERSION}")
        self.chain, self.event = self.text("chain"), self.text("event")
        self.time_utc = self.time("time_s", needed=True)
        if _CHAIN.fullmatch(self.chain) is None:
            raise ValueError(f"chain is {shown(self.chain)}, not eight hexadecimal digits")
        if self.event not in (DECISION, *EVENTS):
            raise ValueError(f"event is {shown(self.event)}: known are {', '.join((DECISION, *EVENTS))}")

    def text(self, name: str) -> str:
        """Return a required text."""
        value = self._values.get(name)
        if not isinstance(value, str):
            raise ValueError(f"{name} is {_shown_value(value)}, not a text")
        return storable(value).replace("\0", "\ufffd")

    def optional_text(self, name: str) -> str | None:
        """Return a text; None where it is null or missing."""
        return None if self._values.get(name) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self._values.get(name)
        if not isinstance(value, bool):
            raise ValueError(f"{name} is {_shown_value(value)}, not true or false")
        return value

    def count(self, name: str, *, needed: bool = True) -> int | None:
        """Return a whole number from 0 to MOST_COUNT; None where it is missing and not needed."""
        value = self._values.get(name)
        if value is None and not needed:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_COUNT:
            raise ValueError(f"{name} is {_shown_value(value)}, not a whole number from 0 to {MOST_COUNT}")
        return value

    def time(self, name: str, *, needed: bool = False) -> datetime | None:
        """Return naive UTC from whole epoch seconds; None where it is missing and not needed."""
        value = self._values.get(name)
        if value is None and not needed:
            return None
        most = (schema.LAST_UTC - EPOCH_UTC) // timedelta(seconds=1)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise ValueError(f"{name} is {_shown_value(value)}, not whole epoch seconds from 0 to {most}")
        return EPOCH_UTC + timedelta(seconds=value)

    def number(self, name: str, values: Line | None = None, *, needed: bool = False) -> float | None:
        """Return a finite number of the line or of `values`; None where it is missing and not needed."""
        value = (self._values if values is None else values).get(name)
        if value is None and not needed:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > 1e300:
            raise ValueError(f"{name} is {_shown_value(value)}, not a number")
        return float(value)

    def seconds(self, name: str, values: Line | None = None, *, needed: bool = False) -> int | None:
        """Convert hours of the log to whole seconds of at least 0; None where missing and not needed."""
        hours = self.number(name, values, needed=needed)
        if hours is None:
            return None
        check_plausible(f"{name.removesuffix('_h')}_s", hours * HOUR_S)
        return round(hours * HOUR_S)

    def observation(self) -> Line:
        """Return the policy's observation, by feature."""
        value = self._values.get("observation")
        if not isinstance(value, dict):
            raise ValueError(f"observation is {_shown_value(value)}, not an object")
        return value

    def candidate(self) -> Line:
        """Return what a plan expected of the link that it chose; {} without a plan."""
        value = self._values.get("candidates", [])
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise ValueError(f"candidates is {_shown_value(value)}, not a list of objects")
        chosen = self._values
        least_s, qos = chosen.get("least_s") or chosen.get("limit_s"), chosen.get("qos") or ""

        def is_chosen(one: Line) -> bool:
            same = one.get("limit_s"), one.get("least_s", least_s), one.get("qos") or ""
            return same == (chosen.get("limit_s"), least_s, qos) and chosen.get("nodes") in (None, one.get("nodes"))

        return next(filter(is_chosen, value), {})

    def hidden(self) -> str:
        """Return the names of the features that could not be observed, joined by commas."""
        value = self._values.get("hidden")
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            raise ValueError(f"hidden is {_shown_value(value)}, not a list of names")
        return storable(",".join(value)).replace("\0", "\ufffd")


def _object(raw: str) -> Line:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a JSON number")

    try:
        value = json.loads(raw.removeprefix("\ufeff"), parse_constant=refuse)
    except RecursionError:
        raise ValueError("the line is nested too deep") from None
    except ValueError as error:
        raise ValueError(f"not a line of JSON: {error}: {shown(raw)}") from None
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object: {shown(raw)}")
    return value


def _shown_value(value: object) -> str:
    """Return a value in quotes, cut. Python cannot print an integer of thousands of digits."""
    try:
        return "missing" if value is None else shown(str(value))
    except (ValueError, RecursionError):
        return "too long to print"


def _decision(line: _Line) -> Row:
    seen = line.observation()
    return {
        "link": line.count("link"),
        "predecessor_id": line.text("job_id"),
        "submit": line.flag("submit"),
        "decided_by": line.text("by"),
        "reason": line.text("reason"),
        "score": line.number("score"),
        "policy": line.text("policy"),
        "version": line.optional_text("version"),
        "setting": line.number("setting", needed=True),
        "left_s": line.seconds("remaining_h", seen),
        "start_estimate_s": line.seconds("start_estimate_h", seen),
        "start_expected_s": line.seconds("start_estimate_expected_h", seen),
        "hidden": line.hidden(),
        "limit_s": line.count("limit_s", needed=False),
        "expected_interruption_s": line.seconds("interruption_h", line.candidate()),
    }


def _attempt(line: _Line) -> Row:
    return {
        "link": line.count("link"), "attempt": line.count("attempt"), "job_id": line.text("job_id"),
        "job_name": line.text("job_name"),
    }  # fmt: skip


def _submitted(line: _Line) -> Row:
    return _attempt(line) | {"submit_utc": line.time("submit_s", needed=True), "dependency": line.text("after")}


def _started(line: _Line) -> Row:
    return _attempt(line) | {"submit_utc": line.time("submit_s"), "start_utc": line.time("start_s", needed=True)}


def _ended(line: _Line) -> Row:
    times = {"start_utc": line.time("start_s"), "end_utc": line.time("end_s")}
    return _attempt(line) | {"state": line.text("how"), "exit_code": line.count("exit_status", needed=False), **times}


def _handover(line: _Line) -> Row:
    return {
        "predecessor_link": line.count("link"), "link": line.count("next_link"),
        "predecessor_id": line.text("predecessor_id"), "job_id": line.text("successor_id"),
        "interruption_s": line.seconds("interruption_h", needed=True),
        "overlap_s": line.seconds("overlap_h", needed=True),
    }  # fmt: skip


EVENTS: dict[str, Callable[[_Line], Row]] = {
    "submitted": _submitted,
    "waits": lambda line: _attempt(line) | {"text": line.text("reason")},
    "started": _started,
    "requeued": _attempt,
    "withdrawn": lambda line: _attempt(line) | {"text": line.text("why")},
    "handed over": lambda line: _attempt(line) | {"text": line.text("to")},
    "ended": _ended,
    "handover": _handover,
    "chain": lambda line: {"state": line.text("status"), "text": line.text("why")},
    "note": lambda line: {"text": line.text("text")},
}

"""Advance reservations from `scontrol show reservation -o`; neither slurm.conf nor a job log records them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

from traces import instants
from traces.errors import InputError
from traces.slurm import conf_values as values
from traces.slurm.conf_lines import Pair, quoted_line, read_records
from traces.slurm.node_lists import NodeLists

_UNSET = frozenset({"(null)", "n/a", "none", ""})


@dataclass(frozen=True)
class Reservation:
    """One advance reservation: from `start_s` to `end_s` only `users` and `accounts` may use its nodes."""

    name: str
    where: str
    start_s: int  # epoch seconds
    end_s: int
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    accounts: tuple[str, ...]
    flags: tuple[str, ...]


def _set(record: dict[str, Pair]) -> dict[str, Pair]:
    return {key: pair for key, pair in record.items() if pair.value.lower() not in _UNSET}


def read_reservations(path: Path, timezone: str) -> tuple[Reservation, ...]:
    """Read the output of `scontrol show reservation -o`, whose times are local times of `timezone`.

    Raises InputError (file:line) for an invalid time and for an end that is not after the start.
    """
    zone = ZoneInfo(timezone)
    reservations, node_lists = [], NodeLists()
    for record in read_records(path, "ReservationName"):
        own, name = _set(record), record["reservationname"]
        for key in ("starttime", "endtime"):
            if key not in own:
                raise InputError(f"{name.where}: reservation {quoted_line(name.value)} has no {key}")
        start, end = _epoch_s(own["starttime"], zone), _epoch_s(own["endtime"], zone)
        if end <= start:
            quoted, end_text = quoted_line(name.value), quoted_line(own["endtime"].value)
            raise InputError(f"{name.where}: reservation {quoted} ends ({end_text}) before it starts")
        lists = {key: values.words(own[key].value) if key in own else () for key in ("accounts", "flags")}
        users = tuple(own["users"].value.split(",")) if "users" in own else ()
        members = tuple(node_lists.expanded(own["nodes"].value, name.where)) if "nodes" in own else ()
        reservations.append(
            Reservation(name.value, name.where, start, end, members, users, lists["accounts"], lists["flags"])
        )
    return tuple(reservations)


def _epoch_s(pair: Pair, zone: ZoneInfo) -> int:
    try:
        return instants.epoch_s(instants.parse(pair.value), zone)
    except ValueError as error:
        raise InputError(
            f"{pair.where}: {pair.key}={quoted_line(pair.value)}: must be a time such as 2026-11-21T08:00:00"
        ) from error

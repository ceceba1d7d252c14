"""What Slurm versions from 22.05 to 26.05 read differently in slurm.conf, as far as it decides when jobs start.

Source: slurm.conf(5) of 22.05.8, 24.11.5 and 26.05.5, and the change logs of the releases between them.
docs/schedulers/slurm-versions.md lists the changes. A version is (year, month), such as (24, 11).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

Version = tuple[int, int]

OLDEST: Version = (22, 5)
CONS_TRES_IS_DEFAULT: Version = (23, 11)  # of SelectType, and multifactor of PriorityType


class Lifetime(NamedTuple):
    """The versions that document a name: from `since` on, up to but not including `until`; None for an open end."""

    since: Version | None
    until: Version | None
    instead: str  # what the other versions use, "" for nothing


# By "Parameter", "Parameter word" or "partition Field", all lower-case.
LIFETIMES = {
    "preemptparameters": Lifetime((23, 2), None, "SchedulerParameters=preempt_..."),
    "schedulerparameters preempt_reorder_count": Lifetime(None, (23, 2), "PreemptParameters=reorder_count"),
    "schedulerparameters preempt_strict_order": Lifetime(None, (23, 2), "PreemptParameters=strict_order"),
    "schedulerparameters preempt_youngest_first": Lifetime(None, (23, 2), "PreemptParameters=youngest_first"),
    "schedulerparameters time_min_as_soft_limit": Lifetime((23, 11), None, ""),
    "schedulerparameters extra_constraints": Lifetime((23, 11), None, ""),
    "schedulerparameters bf_allow_magnetic_slot": Lifetime((24, 11), None, ""),
    "schedulerparameters bf_topopt_enable": Lifetime((24, 11), None, ""),
    "schedulerparameters requeue_delay": Lifetime((25, 11), None, "AuthInfo=cred_expire"),
    "selecttype select/cons_res": Lifetime(None, (23, 11), "select/cons_tres"),
    "selecttype select/cray_aries": Lifetime(None, (24, 5), "select/cons_tres"),
    "selecttypeparameters other_cons_res": Lifetime(None, (23, 11), "select/cons_tres"),
    "selecttypeparameters other_cons_tres": Lifetime(None, (24, 5), "select/cons_tres"),
    "preemptmode priority": Lifetime((25, 5), None, ""),
    "priorityflags max_tres_gres": Lifetime((25, 5), None, ""),
    "partition maxcpuspersocket": Lifetime((23, 2), None, ""),
    "partition exclusivetopo": Lifetime((24, 5), (26, 5), "Exclusive=TOPO"),
    "partition exclusiveuser": Lifetime(None, (26, 5), "Exclusive=USER"),
    "partition exclusive": Lifetime((26, 5), None, "OverSubscribe=EXCLUSIVE, ExclusiveUser"),
    "partition oversubscribe exclusive": Lifetime(None, (26, 5), "Exclusive=NODE"),
    "partition shared": Lifetime(None, (26, 5), "OverSubscribe"),
    "partition topology": Lifetime((25, 5), None, ""),
    "node suspendtime": Lifetime((26, 5), None, ""),
}


def parse_version(text: str) -> Version:
    """Parse a version as `scontrol show config` prints it: 24.11.5, 24.11."""
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() and len(part) == 2 for part in parts[:2]):
        raise ValueError("a version such as 24.11.5 is allowed")
    return int(parts[0]), int(parts[1])


def oldest_with(used: Iterable[str]) -> Version:
    """Return the oldest version that documents every one of the used names, at least 22.05."""
    return max([OLDEST, *(LIFETIMES[name].since or OLDEST for name in used if name in LIFETIMES)])


def of_other_versions(used: Iterable[str], version: Version) -> list[str]:
    """Return one text for each used name that `version` does not document, with what it uses instead."""
    found = []
    for name in dict.fromkeys(used):
        if (life := LIFETIMES.get(name)) is None:
            continue
        when = ""
        if life.since is not None and version < life.since:
            when = f"since {written(life.since)}"
        elif life.until is not None and version >= life.until:
            when = f"until {written(life.until)}"
        if when:
            found.append(f"{name} ({when}{', else ' + life.instead if life.instead else ''})")
    return found


def written(version: Version) -> str:
    """Return a version as Slurm writes it: 24.05."""
    return f"{version[0]:02}.{version[1]:02}"

"""Which nodes are in service: one call of sinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError
from traces.slurm.text import expand_nodes

# Behind a state sinfo writes flags: * no answer, $ maintenance, ^ rebooting; ~ # ! % @ - tell of power saving, of a
# reboot to come, and of a place that backfill has planned (man sinfo, NODE STATE CODES).
_STATE = re.compile(r"([a-z_]+)([*~#!%$@^+-]*)")
OUT_FLAGS = frozenset("*$^")
# Jobs run there: in service until they end, whatever comes after.
WORKING = frozenset({"allocated", "mixed", "completing", "draining", "failing"})
WAITING = frozenset({"idle", "planned", "power_up", "powering_up", "power_down", "powering_down", "powered_down"})


@dataclass(frozen=True)
class SinfoStates:
    """The state of each node in sinfo's long form, `idle` or `mixed-`; none where the user may not see nodes."""

    states: dict[str, str]

    def in_service(self, names: frozenset[str]) -> int:
        """How many of these nodes run jobs or may be given to one."""
        return sum(in_service(self.states.get(name, "")) for name in names)

    def working(self, names: frozenset[str]) -> int:
        """On how many of these nodes jobs run."""
        return sum(_taken_apart(self.states.get(name, ""))[0] in WORKING for name in names)


def read_nodes(commands: Commands) -> SinfoStates:
    """The states of all nodes. Raises SlurmError."""
    return parse_nodes(commands.run("sinfo", "--noheader", "--all", "--format=%T|%N"))


def parse_nodes(text: str) -> SinfoStates:
    """Rows `state|node list`. Raises SlurmError for another row."""
    states: dict[str, str] = {}
    for line in text.splitlines():
        state, bar, names = line.strip().partition("|")
        try:
            states |= dict.fromkeys(expand_nodes(names), state)
        except ValueError as error:
            raise SlurmError("nonsense", "sinfo", str(error)) from error
        if not bar:
            raise SlurmError("nonsense", "sinfo", f"a row without a bar: {line}")
    return SinfoStates(states)


def in_service(state: str) -> bool:
    """Whether a node in that state runs jobs or may be given to one; not so: down, drained, maint, reserved ..."""
    base, flags = _taken_apart(state)
    return base in WORKING or (base in WAITING and not OUT_FLAGS & set(flags))


def _taken_apart(state: str) -> tuple[str, str]:
    match = _STATE.fullmatch(state.lower())
    return (match[1], match[2]) if match else ("", "")

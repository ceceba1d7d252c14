"""The nodes in service: one call of sinfo."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import MOST_NAMES, bounded
from traces.slurm.text import expand_nodes

# sinfo appends flags to a state: * no answer, $ maintenance, ^ rebooting. The flags ~ # ! % @ - mean power saving, a
# pending reboot, or a node planned by backfill (man sinfo, NODE STATE CODES).
_STATE = re.compile(r"([a-z_]+)([*~#!%$@^+-]*)")
OUT_FLAGS = frozenset("*$^")
# Jobs run on these nodes, so they are in service until the jobs end.
WORKING = frozenset({"allocated", "mixed", "completing", "draining", "failing"})
WAITING = frozenset({"idle", "planned", "power_up", "powering_up", "power_down", "powering_down", "powered_down"})


@dataclass(frozen=True)
class SinfoStates:
    """The state of each node in sinfo's long form, such as `idle` or `mixed-`; empty if the user may not see nodes."""

    states: dict[str, str]

    def in_service(self, names: frozenset[str]) -> int:
        """Count the nodes among `names` that run jobs or can be allocated."""
        return sum(in_service(self.states.get(name, "")) for name in names)


def read_nodes(commands: Commands) -> SinfoStates:
    """Read the states of all nodes. Raises SlurmError."""
    return parse_nodes(commands.run("sinfo", "--noheader", "--all", "--format=%T|%N"))


def parse_nodes(text: str) -> SinfoStates:
    """Parse rows `state|node list`. Raises SlurmError for a malformed row, and for over MOST_NAMES nodes."""
    states: dict[str, str] = {}
    named = 0
    for line in answer_lines("sinfo", text):
        state, bar, names = line.strip().partition("|")
        try:
            nodes = expand_nodes(names)
            named = bounded(named + len(nodes), MOST_NAMES)
            states |= dict.fromkeys(nodes, state)
        except ValueError as error:
            raise SlurmError("nonsense", "sinfo", str(error)) from error
        if not bar:
            raise SlurmError("nonsense", "sinfo", f"it printed a row without |: {line}")
    return SinfoStates(states)


def in_service(state: str) -> bool:
    """Whether a node in that state runs jobs or can be allocated; false for down, drained, maint, reserved ..."""
    base, flags = _taken_apart(state)
    return base in WORKING or (base in WAITING and not OUT_FLAGS & set(flags))


def _taken_apart(state: str) -> tuple[str, str]:
    match = _STATE.fullmatch(state.lower())
    return (match[1], match[2]) if match else ("", "")

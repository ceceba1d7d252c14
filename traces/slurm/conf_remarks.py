"""What a slurm.conf says beyond the settings that are read: names without effect, not simulated, or unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from traces.errors import InputError
from traces.slurm import conf_names as names
from traces.slurm.conf_lines import Pair, quoted_line
from traces.slurm.conf_values import words


class ConfRemarks:
    """The settings that are not read: those without effect, and those whose effect is not simulated."""

    def __init__(self) -> None:
        self.ignored: list[str] = []
        self.unmodelled: list[str] = []
        self.used: list[str] = []  # names and values, as `conf_versions.LIFETIMES` spells them

    def parameter(self, pair: Pair, known: Iterable[str]) -> None:
        """Note a top-level parameter. Raises InputError for an unknown name that decides scheduling."""
        name = pair.key.lower()
        self.used += [name, *(f"{name} {word.partition('=')[0]}" for word in words(pair.value))]
        if name in known or name in ("schedulerparameters", "preemptparameters"):
            return
        is_scheduling = name.startswith(names.SCHEDULING_PREFIXES)
        if name in names.PARAMETERS_THAT_MATTER and pair.value.lower() not in names.SETS_NOTHING:
            self.unmodelled.append(f"{pair.where}: {pair.key}={pair.value}")
        elif is_scheduling and name not in names.PARAMETERS_WITHOUT_EFFECT | names.PARAMETERS_THAT_MATTER:
            raise unknown_name(pair, "parameter", {*known, *names.PARAMETERS_THAT_MATTER})
        else:
            self.ignored.append(f"{pair.where}: {pair.key}")

    def fields_of(self, kind: str, record: dict[str, Pair], known: set[str], *, free: Any, matter: Any) -> None:
        """Note the fields of a node or partition line. Raises InputError for an unknown name."""
        for name, pair in record.items():
            self.used += [f"{kind} {name}", f"{kind} {name} {pair.value.lower()}"]
            if name in known:
                continue
            if name in matter and pair.value.lower() not in names.SETS_NOTHING:
                self.unmodelled.append(f"{pair.where}: {kind} {pair.key}={pair.value}")
            elif name in free or name in matter:
                self.ignored.append(f"{pair.where}: {kind} {pair.key}")
            else:
                raise unknown_name(pair, f"{kind} field", {*known, *free, *matter})


def unknown_name(pair: Pair, what: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that neither the manual pages nor this reader know, with the closest known name."""
    close = difflib.get_close_matches(pair.key.lower(), list(known), n=1)
    hint = f"did you mean {close[0]!r}?" if close else "slurm.conf(5) lists the known names"
    return InputError(f"{pair.where}: unknown {what} {quoted_line(pair.key)}: {hint}")

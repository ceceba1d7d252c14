"""`deployment.toml`: the engine that runs the work of a data folder. Without the file, processes of this machine do.

    [engine]
    kind = "slurm"
    scratch = "/shared/me/baton"  # a folder that this machine and all nodes see
    partition = "cpu"
    account = "lab"
    qos = "normal"
    time = "2h"                   # limit of a job
    memory = "4G"                 # of a job
    cpus = 1                      # of a job; a task uses one thread
    at_once = 64                  # most running jobs
    setup = ["module load python/3.11"]

The file is `deployment.toml` in the data folder, or the file that `baton --deployment` or BATON_DEPLOYMENT names. It
holds no secrets. Only `kind`, and for Slurm `scratch`, are needed.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from traces.errors import InputError
from traces.given_paths import bytes_of

FILE = "deployment.toml"
VARIABLE = "BATON_DEPLOYMENT"
KINDS = ("local", "slurm")
MOST_AT_ONCE = 250  # four times as many jobs fit into one array (MaxArraySize is 1001 by default)
_MEMORY = re.compile(r"([1-9]\d{0,8})([MGT])")
_TIME = re.compile(r"([1-9]\d{0,5})([mhd])")
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
_FORMS = {str: "text", int: "a whole number", tuple: "a list of texts"}


@dataclass(frozen=True)
class EngineOptions:
    """The table `engine`."""

    kind: str = "local"
    scratch: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    time: str = "1h"
    memory: str = "4G"
    cpus: int = 1
    at_once: int = 64
    setup: tuple[str, ...] = ()

    def slurm_parameters(self, memory: int = 1) -> dict[str, Any]:
        """Return the parameters of submitit's executor, with `memory` times the memory. Raises InputError (the key)."""
        amount, unit = _parsed(_MEMORY, "memory", self.memory, "4G")
        length, of = _parsed(_TIME, "time", self.time, "2h")
        named = {"partition": self.partition, "account": self.account, "qos": self.qos}
        return {
            **{name: value for name, value in named.items() if value},
            "time": int(length) * _MINUTES[of],
            "mem": f"{int(amount) * memory}{unit}",
            "cpus_per_task": self.cpus,
        }


def read_deployment(root: Path) -> EngineOptions:
    """Read the deployment of the data folder `root`; the defaults without a file. Raises InputError (the file, key)."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named) if named else root / FILE
    try:
        found = tomllib.loads(bytes_of(path).decode())
    except FileNotFoundError:
        if not named:
            return EngineOptions()
        raise InputError(f"{path}: no such file; it is named by --deployment or {VARIABLE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    try:
        _check_keys("", found, ("engine",))
        return _engine(found.get("engine", {}))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _engine(table: Any) -> EngineOptions:
    if not isinstance(table, dict):
        raise InputError(f"engine = {table!r:.60} is not a table: write [engine]")
    known = {one.name: type(one.default) for one in fields(EngineOptions)}
    _check_keys("engine.", table, tuple(known))
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    for name, value in given.items():
        texts = value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
        if type(value) is not known[name] or not all(isinstance(text, str) for text in texts):
            raise InputError(f"engine.{name} = {value!r:.60} is not {_FORMS[known[name]]}")
        if any(not text.isprintable() for text in texts):
            raise InputError(f"engine.{name} = {value!r:.60} contains a control character")
    options = EngineOptions(**given)
    if options.kind not in KINDS:
        raise InputError(f"engine.kind {options.kind!r:.40} is unknown: known are {', '.join(KINDS)}")
    if options.cpus < 1 or not 1 <= options.at_once <= MOST_AT_ONCE:
        raise InputError(f"engine.cpus must be 1 or more, and engine.at_once 1 to {MOST_AT_ONCE}")
    if options.kind == "slurm" and not Path(options.scratch).is_absolute():
        raise InputError(f"engine.scratch {options.scratch!r:.60}: name a folder that all nodes see, from / on")
    options.slurm_parameters()
    return options


def _check_keys(prefix: str, table: dict[str, Any], known: tuple[str, ...]) -> None:
    for name in table:
        if name not in known:
            raise InputError(f"unknown key {prefix}{name:.60}: known are {', '.join(known)}")


def _parsed(pattern: re.Pattern[str], name: str, text: str, example: str) -> tuple[str, str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise InputError(f"engine.{name} {text!r:.40} is not understood: write it as in {example!r}")
    return match[1], match[2]

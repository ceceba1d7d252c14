"""`deployment.toml`: where the work of a data folder runs, and which servers several hosts share.

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
    address = "host:6379"         # of kind "ray": the cluster's head, or "auto", the cluster of this machine

    [tracking]
    uri = "https://mlflow.example.org"  # MLFLOW_TRACKING_URI counts before it

    [locks]
    postgres = "postgresql://baton@db.example.org/baton"  # BATON_LOCKS counts before it

    [lake]
    url = "s3://bucket/prefix"    # or "file:///shared/lake"; AWS_ACCESS_KEY_ID gives the login
    endpoint = "https://s3.example.org"
    region = "us-east-1"
    keep = "30d"                  # how long `baton lake vacuum` keeps old versions

    [dagster]
    home = "/srv/baton/dagster"  # a folder with your dagster.yaml; DAGSTER_HOME counts before it
    at_once = 4                   # clusters at once, of a command and of Baton's own instance; without `home`
    steps_at_once = 2             # processes of a run; 1: the steps run in the run's own process

The file is `deployment.toml` in the data folder, or the file that `baton --deployment` or BATON_DEPLOYMENT names. Every
key may be left out, but `kind = "slurm"` needs `scratch`. Without the file, processes of this machine do the work, and
everything is in the data folder. The file holds no passwords: they come from variables of the environment.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from traces.errors import InputError
from traces.given_paths import bytes_of
from traces.lake.options import LakeOptions, lake_options

FILE = "deployment.toml"
VARIABLE = "BATON_DEPLOYMENT"
KINDS = ("local", "slurm", "ray")
_NOT_FOR = {"slurm": ("address",), "ray": ("partition", "account", "qos", "time", "setup")}
MOST_AT_ONCE = 250  # four times as many jobs fit into one array (MaxArraySize is 1001 by default)
_MEMORY = re.compile(r"([1-9]\d{0,8})([MGT])")
_TIME = re.compile(r"([1-9]\d{0,5})([mhd])")
_ADDRESS = re.compile(r"auto|([A-Za-z0-9][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):(\d{1,5})")
_MOST_PORT = 65535
_MIB = {"M": 1, "G": 1 << 10, "T": 1 << 20}
_MINUTES = {"m": 1, "h": 60, "d": 24 * 60}
# Table of a server: its only key, and the field of Deployment.
_SERVERS = {"tracking": ("uri", "tracking_uri"), "locks": ("postgres", "locks")}
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
    address: str = "auto"

    @property
    def memory_bytes(self) -> int:
        """`memory` in bytes. Raises InputError (the key)."""
        amount, unit = _parsed(_MEMORY, "memory", self.memory, "4G")
        return int(amount) * _MIB[unit] << 20

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


@dataclass(frozen=True)
class DagsterOptions:
    """The table `dagster`: clusters at once, of one command and of Baton's own instance, and processes of each run."""

    home: str = ""
    at_once: int = 1
    steps_at_once: int = 1


@dataclass(frozen=True)
class Deployment:
    """The whole file; an empty text stands for a key that it lacks."""

    path: Path
    engine: EngineOptions = EngineOptions()
    tracking_uri: str = ""
    locks: str = ""
    dagster: DagsterOptions = DagsterOptions()
    lake: LakeOptions = field(default_factory=LakeOptions)


class DeploymentCheck(NamedTuple):
    """One check of `baton doctor`. `mend` is empty if it passed."""

    name: str
    finding: str
    mend: str = ""


def read_deployment(root: Path) -> Deployment:
    """Read the deployment of the data folder `root`; the defaults without a file. Raises InputError (the file, key)."""
    named = os.environ.get(VARIABLE, "")
    path = Path(named) if named else root / FILE
    try:
        found = tomllib.loads(bytes_of(path).decode())
    except FileNotFoundError:
        if not named:
            return Deployment(path)
        raise InputError(f"{path}: no such file; it is named by --deployment or {VARIABLE}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from None
    try:
        _check_keys("", found, ("engine", *_SERVERS, "lake", "dagster"))
        servers = {field: _text(found, table, key) for table, (key, field) in _SERVERS.items()}
        engine, dagster = _engine(_table(found, "engine")), _dagster(_table(found, "dagster"))
        return Deployment(path, engine, **servers, dagster=dagster, lake=lake_options(_table(found, "lake")))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _table(found: dict[str, Any], name: str) -> dict[str, Any]:
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise InputError(f"{name} = {table!r:.60} is not a table: write [{name}]")
    return table


def _text(found: dict[str, Any], name: str, key: str) -> str:
    """Return the only key of the table of a server; empty without it. Raises InputError."""
    table = _table(found, name)
    _check_keys(f"{name}.", table, (key,))
    value = table.get(key, "")
    if not isinstance(value, str) or not value.isprintable():
        raise InputError(f"{name}.{key} is not text on one line")
    try:
        parts = urlsplit(value)
        has_password = parts.password is not None or any("password" in option for option, _ in parse_qsl(parts.query))
    except ValueError as error:
        raise InputError(f"{name}.{key} is not an address: {error}") from None
    if has_password:
        raise InputError(
            f"{name}.{key} holds a password: set MLFLOW_TRACKING_PASSWORD or PGPASSWORD in the environment instead"
        )
    return value


def _given(name: str, options: type[EngineOptions | DagsterOptions], table: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the table `name`, of the types of `options`. Raises InputError."""
    known = {one.name: type(one.default) for one in fields(options)}
    _check_keys(f"{name}.", table, tuple(known))
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    for key, value in given.items():
        texts = value if isinstance(value, tuple) else (value,) if isinstance(value, str) else ()
        if type(value) is not known[key] or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{name}.{key} = {value!r:.60} is not {_FORMS[known[key]]}")
        if any(not text.isprintable() for text in texts):
            raise InputError(f"{name}.{key} = {value!r:.60} contains a control character")
    return given


def _dagster(table: dict[str, Any]) -> DagsterOptions:
    options = DagsterOptions(**_given("dagster", DagsterOptions, table))
    if not (1 <= options.at_once <= MOST_AT_ONCE and 1 <= options.steps_at_once <= MOST_AT_ONCE):
        raise InputError(f"dagster.at_once and dagster.steps_at_once must be 1 to {MOST_AT_ONCE}")
    if options.home and "at_once" in table:
        raise InputError("dagster.at_once does not go with dagster.home: set concurrency.runs in your dagster.yaml")
    return options


def _engine(table: dict[str, Any]) -> EngineOptions:
    given = _given("engine", EngineOptions, table)
    options = EngineOptions(**given)
    if options.kind not in KINDS:
        raise InputError(f"engine.kind {options.kind!r:.40} is unknown: known are {', '.join(KINDS)}")
    if options.cpus < 1 or not 1 <= options.at_once <= MOST_AT_ONCE:
        raise InputError(f"engine.cpus must be 1 or more, and engine.at_once 1 to {MOST_AT_ONCE}")
    uses_scratch = options.kind == "slurm" or (options.kind == "ray" and options.scratch)
    if uses_scratch and not Path(options.scratch).is_absolute():
        raise InputError(f"engine.scratch {options.scratch!r:.60}: name a folder that all nodes see, from / on")
    for name in _NOT_FOR.get(options.kind, ()):
        if name in given:
            raise InputError(f"engine.{name} is not an option of kind {options.kind!r}")
    address = _ADDRESS.fullmatch(options.address)
    if address is None or int(address[2] or 0) > _MOST_PORT:
        raise InputError(f"engine.address {options.address!r:.60} is not understood: write 'host:6379' or 'auto'")
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

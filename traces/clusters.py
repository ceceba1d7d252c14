"""Per-cluster settings: facts about the machine that a raw log does not record.

They are read from the repository's `data/clusters.toml`; the data folder's own `clusters.toml` overrides it key by key.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

from traces import schema
from traces.errors import InputError
from traces.files.queue_tree import DeclaredQueue, queues_of
from traces.given_paths import bytes_of
from traces.store.folder import DataFolder

DECLARED = Path(__file__).resolve().parents[1] / "data" / "clusters.toml"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# Names of folders that share a parent with the clusters' folders, in the lake and in `artifacts`.
RESERVED = frozenset({"derived", "last-runs", "pairs", "policies", "queue-time", "searches", "stamps"})


@dataclass(frozen=True)
class ClusterSettings:
    """The settings of one cluster.

    Instants are naive UTC, as in the tables. `fit_from` to `report_until` bound the windows of a policy comparison.
    """

    name: str
    timezone: str = "UTC"  # zone of the times in the raw logs
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    memory_gib_per_node: int | None = None
    resource: str | None = None  # scarce resource of the cluster, one of RESOURCES; None: inferred from the log
    resources: dict[str, str] = field(default_factory=dict)  # partition -> its scarce resource
    gpu_types: dict[str, int] = field(default_factory=dict)  # GPU type -> its nodes, in order; {}: one unnamed type
    nodes_by_date: tuple[tuple[datetime, int], ...] = ()  # (from this instant, nodes), ascending
    quotas: dict[str, int] = field(default_factory=dict)  # partition -> GPUs
    queues: tuple[DeclaredQueue, ...] = ()  # tree of YARN's schedulers, parents first
    folder: str | None = None  # name of the raw folder that identifies this cluster
    fit_from: datetime | None = None
    fit_until: datetime | None = None
    select_until: datetime | None = None
    report_until: datetime | None = None
    slurm_conf: str | None = None
    decide_every_s: int | None = None  # between a policy's decisions, in training and in the agent; None means 600
    seeds: int | None = None  # seeds that the pipeline fits each learner with; None means 5
    pair_nodes: tuple[int, ...] = ()  # node counts of the pairs added to its replay; () means 1 and 8, where they fit
    hyperparameters: dict[str, dict[str, int | float]] = field(default_factory=dict)  # policy -> name -> value
    looks_ahead: bool = False  # whether `baton run` may release policies that look ahead
    what_if: dict[str, Any] = field(default_factory=dict)  # the pipeline's replays (`_WHAT_IF`)


KEYS = tuple(f.name for f in fields(ClusterSettings) if f.name != "name")
MOST_SEEDS = 1_000
MOST_PAIR_SIZES = 8
MOST_WHAT_IFS = 8  # schedulers in the pipeline's replays; the same bound holds for changes
MOST_REPLAYED = 1_000_000  # jobs in one of the pipeline's replays
MOST_GPU_TYPES = 16
RESOURCES = ("GPU", "core", "memory", "node")
_INSTANTS = ("fit_from", "fit_until", "select_until", "report_until")
_COUNTS = {"nodes": schema.MOST["nodes"], "gpus_per_node": schema.MOST["gpus"]}  # setting -> upper bound; may be 0
# Setting -> upper bound, for settings that must be at least 1.
_SIZES = {
    "seeds": MOST_SEEDS, "decide_every_s": 86_400,
    "cpus_per_node": schema.MOST["cpus"], "memory_gib_per_node": schema.MOST["mib"] >> 10,
}  # fmt: skip


def check_name(name: str) -> str:
    """Return the name. Raises InputError unless it can name a folder of the lake."""
    if not NAME.fullmatch(name) or name in RESERVED:
        raise InputError(
            f"cluster name {_shown(name)} is not allowed: use at most 64 letters, digits, '.', '_' and '-', and none "
            f"of the reserved names {', '.join(sorted(RESERVED))}"
        )
    return name


def check_timezone(zone: str, where: str) -> str:
    """Return the zone. Raises InputError unless the tz database has it."""
    if zone not in _zones():
        raise InputError(f"{where}: unknown time zone {_shown(zone)}: use a name such as UTC or America/Chicago")
    return zone


@cache
def _zones() -> frozenset[str]:
    """Return the zone names of the tz database, without its aliases for the machine's own zone."""
    return frozenset(available_timezones() - {"Factory", "localtime"})


def load(data: DataFolder) -> dict[str, ClusterSettings]:
    """Return every declared cluster, by name. Raises InputError for a file that breaks the documented format."""
    merged: dict[str, dict[str, Any]] = {}
    for path in (DECLARED, data.clusters_toml):
        for name, table in _read(path).items():
            merged.setdefault(check_name(name), {}).update(table)
    return {name: ClusterSettings(name=name, **table) for name, table in sorted(merged.items())}


def resolve(
    data: DataFolder,
    *,
    raw: Path | None = None,
    cluster: str | None = None,
    timezone: str | None = None,
    nodes: int | None = None,
    gpus_per_node: int | None = None,
    cpus_per_node: int | None = None,
    resource: str | None = None,
    new: bool = False,
) -> ClusterSettings:
    """Return the settings of `cluster`, or of the cluster whose `folder` is the name of `raw`; flags override them.

    An undeclared name is accepted if the caller brings data for it (`raw`, a flag or `new`) or the lake holds some.
    Raises InputError, which lists the known clusters, where the cluster cannot be determined.
    """
    known = load(data)
    counts = {"nodes": nodes, "gpus_per_node": gpus_per_node, "cpus_per_node": cpus_per_node}
    if cluster is not None:
        check_name(cluster)
        brings = new or any(given is not None for given in (raw, timezone, resource, *counts.values()))
        settings = known.get(cluster)
        if settings is None and (brings or (data.lake / cluster).is_dir()):
            settings = ClusterSettings(name=cluster)
        if settings is None:
            raise InputError(
                f"unknown cluster {cluster!r}: known are {_names(known)}; to add it, declare it in {data.clusters_toml}"
            )
    else:
        folder = raw.resolve().name if raw is not None else None
        fits = [s for s in known.values() if folder is not None and s.folder == folder]
        if len(fits) != 1:
            what = f"folder {folder!r} does not identify one declared cluster" if folder else "no cluster is named"
            raise InputError(
                f"{what}: give --cluster (known: {_names(known)}), or set `folder` in {data.clusters_toml}"
            )
        settings = fits[0]
    if timezone is not None:
        settings = replace(settings, timezone=check_timezone(timezone, "--timezone"))
    if resource is not None:
        settings = replace(settings, resource=_resource(resource, "--resource"))
    for flag, value in counts.items():
        if value is not None:
            least, most = (0 if flag == "gpus_per_node" else 1), (_COUNTS | _SIZES)[flag]
            if not least <= value <= most:
                raise InputError(f"--{flag.replace('_', '-')} {value}: must be a whole number from {least} to {most:,}")
            settings = replace(settings, **{flag: value})  # type: ignore[arg-type]
    return settings


def _names(known: dict[str, ClusterSettings]) -> str:
    return ", ".join(known) or "none"


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the tables of one clusters.toml with their values converted; {} where the file does not exist."""
    try:
        tables = tomllib.loads(bytes_of(path, pipes=False).decode("utf-8"))
    except FileNotFoundError:
        return {}
    except RecursionError as error:
        raise InputError(f"{path}: not readable as TOML: it is nested too deep") from error
    except ValueError as error:  # TOML syntax, wrong encoding, or an invalid number or date
        raise InputError(f"{path}: not readable as TOML: {' '.join(str(error).split())}") from error
    return {name: _converted(path, name, table) for name, table in tables.items()}


def _converted(path: Path, name: str, table: Any) -> dict[str, Any]:
    where = f"{path}: [{name[:80]}]"
    if not isinstance(table, dict):
        raise InputError(f"{where}: a cluster must be a table of settings, got {_shown(table)}")
    result: dict[str, Any] = {}
    for key, value in table.items():
        if key not in KEYS:
            raise InputError(f"{where}: unknown setting {_shown(key)}: allowed are {', '.join(KEYS)}")
        if key in _INSTANTS:
            value = _instant(value, f"{where} {key}")
        elif key == "nodes_by_date":
            value = _by_date(value, f"{where} {key}")
        elif key in _COUNTS:
            value = _count(value, f"{where} {key}", _COUNTS[key])
        elif key == "resource":
            value = _resource(value, f"{where} resource")
        elif key == "resources":
            value = _resources(value, f"{where} resources")
        elif key == "gpu_types":
            value = _gpu_types(value, f"{where} gpu_types")
        elif key in _SIZES:
            if not _count(value, f"{where} {key}", _SIZES[key]):
                raise InputError(f"{where} {key}: must be at least 1, got {_shown(value)}")
        elif key == "pair_nodes":
            value = _sizes(value, f"{where} pair_nodes")
        elif key == "queues":
            value = queues_of(value, f"{where} queues")
        elif key == "quotas":
            if not isinstance(value, dict):
                raise InputError(f"{where} quotas: must be a table of partition = GPUs, got {_shown(value)}")
            value = {
                partition: _count(gpus, f"{where} quotas.{partition[:80]}", schema.MOST["gpus"])
                for partition, gpus in value.items()
            }
        elif key == "hyperparameters":
            value = _hyperparameters(value, f"{where} hyperparameters")
        elif key == "looks_ahead":
            if not isinstance(value, bool):
                raise InputError(f"{where} looks_ahead: must be true or false, got {_shown(value)}")
        elif key == "what_if":
            value = _what_if(value, f"{where} what_if")
        elif not isinstance(value, str):
            raise InputError(f"{where} {key}: must be text, got {_shown(value)}")
        result[key] = value
    if "timezone" in result:
        check_timezone(result["timezone"], where)
    return result


def _resource(value: Any, where: str) -> str:
    """Return the value as one of RESOURCES; upper and lower case are equal."""
    found = [name for name in RESOURCES if isinstance(value, str) and name.lower() == value.lower()]
    if not found:
        raise InputError(f"{where}: must be one of {', '.join(RESOURCES)}, got {_shown(value)}")
    return found[0]


def _resources(value: Any, where: str) -> dict[str, str]:
    """Return the resource of each partition. The partition names are checked later, against the log."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a table of partition = resource, got {_shown(value)}")
    return {partition: _resource(name, f"{where}.{partition[:80]}") for partition, name in value.items()}


def _hyperparameters(value: Any, where: str) -> dict[str, dict[str, int | float]]:
    """Return one table of numbers a policy. Policies and parameter names are checked later, when they are fitted."""
    if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
        raise InputError(f"{where}: must be a table of numbers for each policy, got {_shown(value)}")
    for policy, table in value.items():
        for name, number in table.items():
            if not isinstance(number, int | float) or isinstance(number, bool):
                raise InputError(f"{where}.{policy[:80]}.{name[:80]}: must be a number, got {_shown(number)}")
    return value


def _gpu_types(value: Any, where: str) -> dict[str, int]:
    """Return the nodes of each GPU type. The replay checks the type names and that the counts cover all nodes."""
    if not isinstance(value, dict) or not 1 <= len(value) <= MOST_GPU_TYPES:
        raise InputError(
            f"{where}: must be a table of 1 to {MOST_GPU_TYPES} types such as {{ T4 = 12, A100 = 4 }}, "
            f"got {_shown(value)}"
        )
    for kind, nodes in value.items():
        if not _count(nodes, f"{where}.{kind[:80]}", schema.MOST["nodes"]):
            raise InputError(f"{where}.{kind[:80]}: must be at least 1 node, got {_shown(nodes)}")
    return value


_WHAT_IF = ("schedulers", "changes", "seeds", "jobs", "profiles")


def _what_if(value: Any, where: str) -> dict[str, Any]:
    """Return the what-if settings of the GPU schedulers. The replay checks the scheduler and change names."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: must be a table with some of {', '.join(_WHAT_IF)}, got {_shown(value)}")
    for key, entry in value.items():
        if key in ("schedulers", "changes"):
            least = 1 if key == "schedulers" else 0
            is_list = isinstance(entry, list) and all(isinstance(name, str) for name in entry)
            if not is_list or not least <= len(entry) <= MOST_WHAT_IFS:
                raise InputError(
                    f"{where}.{key}: must be a list of {least} to {MOST_WHAT_IFS} texts, got {_shown(entry)}"
                )
        elif key in ("seeds", "jobs"):
            if not _count(entry, f"{where}.{key}", MOST_SEEDS if key == "seeds" else MOST_REPLAYED):
                raise InputError(f"{where}.{key}: must be at least 1, got {_shown(entry)}")
        elif key == "profiles":
            if not isinstance(entry, str):
                raise InputError(f"{where}.profiles: must be none, published or a path, got {_shown(entry)}")
        else:
            raise InputError(f"{where}: unknown setting {_shown(key)}: allowed are {', '.join(_WHAT_IF)}")
    return value


def _shown(value: Any) -> str:
    """Return the value for a message, cut to 80 characters. Python cannot print a number of thousands of digits."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= 80 else f"{text[:79]}…"


def _count(value: Any, where: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InputError(f"{where}: must be a whole number from 0 to {most:,}, got {_shown(value)}")
    return value


def _sizes(value: Any, where: str) -> tuple[int, ...]:
    """Return the sizes of pairs in the given order. Raises InputError for a repeated size or a size of 0."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST_PAIR_SIZES:
        raise InputError(
            f"{where}: must be a list of 1 to {MOST_PAIR_SIZES} node counts such as [1, 8], got {_shown(value)}"
        )
    sizes = tuple(_count(size, where, schema.MOST["nodes"]) for size in value)
    if 0 in sizes or len(set(sizes)) < len(sizes):
        raise InputError(f"{where}: sizes must be distinct and at least 1, got {_shown(value)}")
    return sizes


def _instant(value: Any, where: str) -> datetime:
    """Return a TOML date or date-time as naive UTC; a time without an offset is UTC."""
    if isinstance(value, date) and schema.FIRST_UTC.year < value.year < schema.LAST_UTC.year:
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    raise InputError(f"{where}: must be a date such as 2023-01-01, got {_shown(value)}")


def _by_date(value: Any, where: str) -> tuple[tuple[datetime, int], ...]:
    if not isinstance(value, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        raise InputError(f"{where}: must be a list of [date, nodes], got {_shown(value)}")
    return tuple(sorted((_instant(day, where), _count(nodes, where, schema.MOST["nodes"])) for day, nodes in value))

"""Shared by the subcommands: options, parsing of values with units, and the output streams."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from pipelines import completion
from traces import instants
from traces.errors import InputError
from traces.given_paths import data_root, exists
from traces.progress import say as say
from traces.slurm.text import SPAN_FORMS, parse_span_s
from traces.store.folder import DEFAULT, DataFolder
from traces.units import HOUR_S
from traces.visible import storable

# Bounds far above any real cluster or wait. Arithmetic on values within them stays within 64 bits.
MOST_NODES = 10_000_000
MOST_GPUS = 10_000  # per node
MOST_CPUS = 1_000_000  # per node
MOST_SEED = 4_000_000_000  # every library's generator accepts this seed and a few hundred above it
_YEARS = range(1970, 9999)  # of dates; in any time zone they are valid dates in UTC
_LONGEST_S = 100 * 366 * 86400

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", envvar="BATON_DATA", help="Data folder (lake, warehouse, mlflow, artifacts).", show_default=False
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
]
Timezone = Annotated[str | None, typer.Option("--timezone", help="Time zone of local times in the log (IANA name).")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, max=MOST_NODES, help="Number of nodes of the cluster.")]
GpusPerNode = Annotated[int | None, typer.Option("--gpus-per-node", min=1, max=MOST_GPUS, help="GPUs per node.")]
CpusPerNode = Annotated[int | None, typer.Option("--cpus-per-node", min=1, max=MOST_CPUS, help="CPUs per node.")]
From = Annotated[str | None, typer.Option("--from", help="Jobs submitted from this date on (UTC).")]
To = Annotated[str | None, typer.Option("--to", help="Jobs submitted before this date (UTC).")]
Resource = Annotated[
    str | None, typer.Option("--resource", help="Resource to measure the cluster in: GPU, core, memory or node.")
]
Format = Annotated[str, typer.Option("--format", help="Log format, or auto to detect it.")]
Fields = Annotated[str | None, typer.Option("--fields", help="Columns of a dump without a header: a,b,c.")]
Mkdir = Annotated[bool, typer.Option("--mkdir", help="Create missing folders of output files.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Delimiter of a dump without a header.")]


def data_folder(context: typer.Context, data: Path | None) -> DataFolder:
    """Return the data folder: the command's --data or BATON_DATA, else --data before the command, else data/.

    data/ is the repository's. Raises InputError for a path that cannot be a data folder.
    """
    return DataFolder(data_root(data or context.obj or DEFAULT))


def check_targets(targets: dict[str, Path | None], *, mkdir: bool | None = None) -> None:
    """Raise InputError for an output file (by option) whose folder does not exist, unless `mkdir` is set.

    The caller creates the folder, and only with --mkdir, so that a misspelt path leaves no folder behind. None: of a
    command without --mkdir.
    """
    for option, path in targets.items():
        if path is not None and not mkdir and not exists(path.parent):
            create = "make it first" if mkdir is None else "add --mkdir to create it"
            raise InputError(f"{option} {path}: the folder {path.parent} does not exist; {create}")


def duration_s(text: str, plain_s: float = 1.0, *, least_s: int = 1) -> int:
    """Parse '48h', '30m', '2d', Slurm's '2-00:00:00' or a plain number of `plain_s`; returns s. Raises InputError."""
    try:
        seconds = parse_span_s(text, plain_s)
    except ValueError as error:
        raise InputError(str(error)) from None
    if seconds is None:
        raise InputError(f"duration {text[:80]!r} is unlimited, but a finite one is needed; {SPAN_FORMS}")
    if seconds > _LONGEST_S:
        raise InputError(f"duration {text[:80]!r} is longer than 100 years; {SPAN_FORMS}")
    if round(seconds) < least_s:
        raise InputError(f"duration {text[:80]!r} is shorter than {least_s} s; {SPAN_FORMS}")
    return round(seconds)


def replay_span_s(horizon: str) -> int:
    """Parse --horizon, s. Raises InputError for less than an hour."""
    span_s = duration_s(horizon)
    if span_s < HOUR_S:
        raise InputError(f"--horizon {horizon[:80]!r} is shorter than an hour; write 24h or 7-0")
    return span_s


def utc_s(text: str) -> int:
    """Parse an ISO date or time to epoch seconds; without an offset it is UTC. Raises InputError."""
    try:
        moment = instants.parse(text)
    except ValueError:
        raise InputError(f"invalid date {text[:80]!r}; write 2023-02-01 or 2023-02-01T12:00 (UTC)") from None
    if moment.year not in _YEARS:
        raise InputError(f"date {text!r} is outside the years {_YEARS[0]} to {_YEARS[-1]}")
    return instants.epoch_s(moment)


def names(text: str) -> list[str]:
    """Split a comma-separated option; keep the order and drop duplicates."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse a comma-separated option of positive integers. Raises InputError."""
    parts = names(text)
    if not parts or not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise InputError(f"invalid {option} {text[:80]!r}; write positive integers such as 1 or 1,8")
    return tuple(int(part) for part in parts)


def plain(value: Any) -> Any:
    """Convert a value for JSON: numpy scalars to Python's, NaN and infinities to null, paths and times to text."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        return plain(value.item())
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return storable(str(value))


def check_tracking(folder: DataFolder, cluster: str | None = None) -> None:
    """Check the server that MLFLOW_TRACKING_URI names, and fetch the cluster's champions from it; nothing without one.

    Call it before work begins. Raises InputError.
    """
    from models.tracking import address, remote

    remote.check_servers(folder)
    if cluster is not None and address.tracking_server(folder) is not None:
        from models.release.champion import fetch_champions

        fetch_champions(folder, cluster)


@contextlib.contextmanager
def output(as_json: bool) -> Iterator[TextIO]:
    """Yield the stream for the result. Under --json all other output goes to standard error.

    Libraries (boosters, their C code) print to file descriptor 1 without Python's knowledge. Therefore we redirect the
    descriptor itself until the work is done.
    """
    if not as_json:
        yield sys.stdout
        return
    sys.stdout.flush()
    kept, python_stdout = os.dup(1), sys.stdout
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    try:
        with os.fdopen(os.dup(kept), "w", encoding="utf-8") as stream:
            yield stream
    finally:
        sys.stdout = python_stdout
        os.dup2(kept, 1)
        os.close(kept)


def write_json(stream: TextIO, result: dict[str, Any]) -> None:
    """Write a result as one line of JSON. Raises ValueError for a number that JSON cannot hold."""
    stream.write(json.dumps(plain(result), allow_nan=False) + "\n")
    stream.flush()


def figure(value: float) -> str:
    """Format a number: integers with separators, others with four significant digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"

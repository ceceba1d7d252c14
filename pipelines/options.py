"""What the subcommands share: options, values with units, and what goes to which stream."""

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
from traces.store.folder import DataFolder
from traces.visible import storable

# No cluster, and no wait, comes near these; what is computed from them stays within 64 bits.
MOST_NODES = 10_000_000
MOST_GPUS = 10_000  # of a node
MOST_CPUS = 1_000_000  # of a node
MOST_SEED = 4_000_000_000  # that every library's generator takes, and some hundreds after it
_YEARS = range(1970, 9999)  # of dates; in any zone they are dates in UTC too
_LONGEST_S = 100 * 366 * 86400

Data = Annotated[
    Path | None,
    typer.Option(
        "--data", envvar="BATON_DATA", help="Data folder: lake, warehouse, mlflow, artifacts.", show_default=False
    ),
]
ClusterName = Annotated[
    str, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output and nothing else.")]
Cluster = Annotated[
    str | None, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
]
Timezone = Annotated[str | None, typer.Option("--timezone", help="Zone of the log's local times (IANA name).")]
Nodes = Annotated[int | None, typer.Option("--nodes", min=1, max=MOST_NODES, help="Nodes of the cluster.")]
GpusPerNode = Annotated[int | None, typer.Option("--gpus-per-node", min=1, max=MOST_GPUS, help="GPUs in a node.")]
CpusPerNode = Annotated[int | None, typer.Option("--cpus-per-node", min=1, max=MOST_CPUS, help="CPUs in a node.")]
Resource = Annotated[
    str | None, typer.Option("--resource", help="What the cluster is about: GPU, core, memory or node.")
]
Format = Annotated[str, typer.Option("--format", help="Reader, or auto.")]
Fields = Annotated[str | None, typer.Option("--fields", help="Columns of a dump without a header: a,b,c.")]
Mkdir = Annotated[bool, typer.Option("--mkdir", help="Create the folder of a file that is written.")]
Delimiter = Annotated[str | None, typer.Option("--delimiter", help="Delimiter of a dump without a header.")]


def data_folder(context: typer.Context, data: Path | None) -> DataFolder:
    """The command's own --data (or BATON_DATA), else the one given before the command, else the repository's data/.

    Raises InputError for a path that no data folder can have.
    """
    return DataFolder(data_root(data or context.obj or completion.DATA))


def check_targets(targets: dict[str, Path | None], *, mkdir: bool) -> None:
    """Raises InputError for a file to be written, by its option, whose folder does not exist; not where `mkdir` is set.

    The caller makes the folder, and only with --mkdir: a misspelt path must not leave a folder behind.
    """
    for option, path in targets.items():
        if path is not None and not mkdir and not exists(path.parent):
            raise InputError(f"{option} {path}: the folder {path.parent} does not exist; add --mkdir to create it")


def duration_s(text: str) -> int:
    """Seconds of '48h', '30m', '2d', Slurm's '2-00:00:00' or a plain number of seconds. Raises InputError."""
    try:
        seconds = parse_span_s(text)
    except ValueError as error:
        raise InputError(str(error)) from None
    if seconds is None:
        raise InputError(f"duration {text[:80]!r} has no end, and one is needed here; {SPAN_FORMS}")
    if seconds > _LONGEST_S:
        raise InputError(f"duration {text[:80]!r} is over 100 years; {SPAN_FORMS}")
    if round(seconds) <= 0:
        raise InputError(f"duration {text[:80]!r} is less than 1 s; {SPAN_FORMS}")
    return round(seconds)


def utc_s(text: str) -> int:
    """Epoch seconds of an ISO date or time; one without an offset is UTC. Raises InputError."""
    try:
        moment = instants.parse(text)
    except ValueError:
        raise InputError(f"date {text[:80]!r} is not understood; write 2023-02-01 or 2023-02-01T12:00 (UTC)") from None
    if moment.year not in _YEARS:
        raise InputError(f"date {text!r} is outside the years {_YEARS[0]} to {_YEARS[-1]}")
    return instants.epoch_s(moment)


def names(text: str) -> list[str]:
    """The parts of a comma-separated option, in order, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Positive whole numbers of a comma-separated option. Raises InputError."""
    parts = names(text)
    if not parts or not all(part.isdecimal() and len(part) < 10 and int(part) > 0 for part in parts):
        raise InputError(f"{option} {text[:80]!r} is not understood; write positive whole numbers such as 1 or 1,8")
    return tuple(int(part) for part in parts)


def plain(value: Any) -> Any:
    """The value as JSON holds it: numpy scalars as Python's, NaN and infinities as null, paths and times as text."""
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


@contextlib.contextmanager
def output(as_json: bool) -> Iterator[TextIO]:
    """Standard output for the result. Under --json everything else that writes to it goes to standard error.

    Libraries (boosters, their C code) print to file descriptor 1 behind Python's back, so it is the descriptor
    that is pointed elsewhere until the work is done.
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
    """Writes a result as one line of JSON. Raises ValueError for a number that JSON does not have."""
    stream.write(json.dumps(plain(result), allow_nan=False) + "\n")
    stream.flush()


def figure(value: float) -> str:
    """A number for a person: whole ones with separators, others with four significant digits."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"

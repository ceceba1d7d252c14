"""Names of the raw formats that Baton reads, as `--format` takes them. `traces.readers.registry` holds the readers."""

from __future__ import annotations

from traces.errors import InputError

AUTO = "auto"
# In the order in which they are tried. sacct comes last, because it recognises a dump by only a few columns.
FORMATS = (
    "philly-jobs",
    "philly-gpu-util",
    "philly-cpu-util",
    "philly-mem-util",
    "philly-machines",
    "philly-derived",
    "helios",
    "acme",
    "openb-pods",
    "openb-nodes",
    "graham",
    "swf",
    "agent",
    "scontrol-nodes",
    "sinfo",
    "sinfo-json",
    "sacct",
)


def check_format(name: str) -> None:
    """Raise InputError for a name that is neither `auto` nor a reader's."""
    if name != AUTO and name not in FORMATS:
        raise InputError(f"unknown format {name!r}: known are {AUTO}, {', '.join(FORMATS)}")

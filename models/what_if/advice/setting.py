"""Any setting of slurm.conf that the `slurm` scheduler simulates, as a change: `conf.PriorityMaxAge=14-0`.

`conf.KEY=VALUE` is a setting of the file, `conf.partition.NAME.KEY=VALUE` one of a partition, and a key of
SchedulerParameters, such as bf_interval, changes that option. Only the declared cluster shows the effect.
"""

from __future__ import annotations

import difflib
from dataclasses import fields

from models.what_if.advice.conf_text import ConfEdit
from traces.errors import InputError
from traces.slurm.conf import PartitionConf, SchedulerOptions, SlurmConf

PREFIX = "conf."
_FIXED = {"clustername", "slurm_version", "authinfo"}  # no change of a running cluster
_OF_PREEMPT = "preempt_"  # options that newer versions read from PreemptParameters


def setting_edit(change: str) -> ConfEdit:
    """Return the edit. Raises InputError for a setting that is not simulated, and names those with similar names."""
    name, _equals, value = (part.strip() for part in change.removeprefix(PREFIX).partition("="))
    partition, key = None, name
    if name.startswith("partition."):
        partition, _dot, key = name.removeprefix("partition.").rpartition(".")
        if not partition:
            raise InputError(f"change {change[:80]!r} names no partition: write conf.partition.NAME.KEY=VALUE")
    known = _keys(PartitionConf) if partition else {**_keys(SlurmConf), **_options()}
    found = known.get(key.lower())
    if found is None:
        near = difflib.get_close_matches(key.lower(), known, n=3, cutoff=0.6)
        hint = ", ".join(known[one] for one in near) or ", ".join(sorted(known.values())[:8]) + ", ..."
        raise InputError(f"change {change[:80]!r}: {key[:40]!r} is not simulated; settings that are: {hint}")
    if not value:
        raise InputError(f"change {change[:80]!r} has no value")
    return ConfEdit(found, value, partition, is_option=partition is None and key.lower() in _options())


def _keys(record: type[SlurmConf | PartitionConf | SchedulerOptions]) -> dict[str, str]:
    """The settings of a record by their lower-case keys."""
    keys = (one.metadata["key"] for one in fields(record) if one.metadata)
    return {key.lower(): key for key in keys if key.lower() not in _FIXED}


def _options() -> dict[str, str]:
    return {low: key for low, key in _keys(SchedulerOptions).items() if not low.startswith(_OF_PREEMPT)}

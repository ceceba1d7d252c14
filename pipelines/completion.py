"""Shell completion of option values: clusters, sections, policies, schedulers. It never fails and is never slow.

Each function takes the typed text and yields the names that begin with it. For an option that takes several values
(a,b) it completes the last one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import typer

from traces.errors import BatonError
from traces.store.folder import DEFAULT


def clusters(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Complete a cluster that clusters.toml declares or the warehouse holds."""
    return _of(_clusters(context), incomplete)


def several_clusters(context: typer.Context, incomplete: str) -> Iterator[str]:
    """Complete one of several clusters: a,b."""
    return _last_of(_clusters(context), incomplete)


def sections(incomplete: str) -> Iterator[str]:
    """Complete a section of the report."""
    from reports.sections.names import SECTION_NAMES

    return _of(SECTION_NAMES, incomplete)


def policies(incomplete: str) -> Iterator[str]:
    """Complete one of several provisioning policies, `all` or `champion`: a,b."""
    from models.provisioning.registry import every_policy

    return _last_of(("all", "champion", *every_policy()), incomplete)


def learners(incomplete: str) -> Iterator[str]:
    """Complete a policy whose hyper-parameters can be searched."""
    from models.provisioning.learning.hyperparameters import TUNABLE

    return _of(TUNABLE, incomplete)


def objectives(incomplete: str) -> Iterator[str]:
    """Complete an objective of `baton advise`."""
    from models.what_if.advice.names import OBJECTIVE_NAMES

    return _of(OBJECTIVE_NAMES, incomplete)


def scheduler(incomplete: str) -> Iterator[str]:
    """Complete a scheduler that allocates whole nodes, including slurm."""
    return _of(_of_nodes(), incomplete)


def several_schedulers(incomplete: str) -> Iterator[str]:
    """Complete one of several schedulers that allocate whole nodes: a,b."""
    return _last_of(_of_nodes(), incomplete)


def what_if_schedulers(incomplete: str) -> Iterator[str]:
    """Complete one of several schedulers of `baton whatif`; offer those comparable with the names given."""
    from simulator.gpu.registry import IN_RECORDED_MACHINE
    from simulator.names import RECORDED, SCHEDULERS, gpu_schedulers

    given = incomplete.split(",")[:-1]
    known = dict.fromkeys((*([] if given else [RECORDED]), *gpu_schedulers(), *SCHEDULERS))
    for name in given:
        kinds = [kind for kind in (gpu_schedulers(), tuple(SCHEDULERS)) if name in kind]
        kinds += [IN_RECORDED_MACHINE] if name == RECORDED else []
        known = {one: None for one in known if any(one in kind for kind in kinds)}
    return _last_of(known, incomplete)


def _of_nodes() -> tuple[str, ...]:
    from simulator.names import SCHEDULERS, SLURM

    return (*SCHEDULERS, SLURM)


def _clusters(context: typer.Context) -> list[str]:
    """List the clusters of the data folder that the command line names; none if it cannot be read."""
    from traces.clusters import load
    from traces.given_paths import data_root
    from traces.store.contents import cluster_names
    from traces.store.folder import DataFolder

    above = context.parent.params.get("data") if context.parent else None
    root = context.params.get("data") or above or os.environ.get("BATON_DATA") or DEFAULT
    found: set[str] = set()
    for names in (load, cluster_names):
        try:
            found.update(names(DataFolder(data_root(Path(root)))))
        except (BatonError, OSError):
            continue
    return sorted(found)


def _of(known: Iterable[str], incomplete: str) -> Iterator[str]:
    return (name for name in known if name.startswith(incomplete))


def _last_of(known: Iterable[str], incomplete: str) -> Iterator[str]:
    """Yield names that begin with the last part of a,b, without those already given."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return (f"{before}{comma}{name}" for name in known if name.startswith(last) and name not in given)

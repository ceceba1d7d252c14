"""Make pairs, and the environment that plays them, from a data folder in one call: the entry point for researchers.

    pairs = pairs_of("data", "sample", window="fit")      # arrays: models.provisioning.protocol.PairTable
    env = make_env("data", "sample", window="report")     # a Gymnasium environment

These are the pairs that `baton train` fits on and `baton evaluate` compares on. The same code builds them and stores
them under `artifacts/pairs` of the data folder, so that only the first call takes long.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.provisioning.environment import ProvisioningEnv
from models.provisioning.protocol import PairTable
from traces.errors import InputError

if TYPE_CHECKING:
    from models.study.windows import Window

WINDOWS = ("fit", "select", "report")


def pairs_of(data: str | os.PathLike[str], cluster: str, window: str | Window = "fit", **scenario: Any) -> PairTable:
    """The chained pairs of one window of a cluster's trace, with every decision and its outcome.

    data: the data folder, as `--data` of the command line; `baton ingest` or `baton analyze` fills it.
    cluster: a name as in `clusters.toml`.
    window: which starts. The three windows are chronological (declared in `clusters.toml`, else the newest whole
        weeks to report on, some before them to select on, and all before those to fit on):
        "fit": starts for Baton's learners, with half-hourly decisions, on the cluster as it is and on a busier one;
        "select": starts for choosing settings; "report": starts for the evaluation, used once;
        or a `models.study.windows.Window` of your own, in epoch seconds.
        "fit" and "select" hold only pairs whose outcomes were known when the window ended, and "fit" uses only
        what a dump taken then would hold.
    scenario: other arguments of `models.study.cluster.open_study`: `capacity` (nodes), `pair_nodes` (1 and 8, if they
        fit), `limit_s` (48 h), `scheduler` ("mirage"), `every_s` (4 h between starts).

    Raises InputError, one line, if there is no warehouse; if the cluster is unknown or declares no nodes; if its jobs
    have no time limits (then none needs a successor) or no submissions; if the trace is too short for its windows; if
    the window has no pair with a known outcome; or if a scenario does not fit the cluster. Raises TypeError for an
    unknown name in `scenario`.
    """
    from models.study.cluster import open_study
    from models.study.inputs import why_no_plan
    from traces import clusters
    from traces.store.folder import DataFolder

    if isinstance(window, str) and window not in WINDOWS:
        raise InputError(f"unknown window {window!r}; known: {', '.join(WINDOWS)}, or a models.study.windows.Window")
    folder = DataFolder(Path(data))
    settings = clusters.resolve(folder, cluster=cluster)
    if why := why_no_plan(folder, cluster):
        raise InputError(why)
    study = open_study(folder, settings, **scenario)
    chosen = window if not isinstance(window, str) else getattr(study.windows, window)
    pairs = study.fit_pairs(chosen) if window == "fit" else study.pairs(chosen)
    if window in ("fit", "select"):
        pairs = pairs.known_before(chosen.until_s)
    if not len(pairs):
        raise InputError(
            f"no pair of cluster {cluster!r} started in {chosen} and had a known outcome; give a longer trace"
        )
    return pairs


def make_env(
    data: str | os.PathLike[str],
    cluster: str,
    window: str | Window = "fit",
    *,
    weight: float = 1.0,
    every: int = 1,
    render_mode: str | None = None,
    **scenario: Any,
) -> ProvisioningEnv:
    """The environment on the pairs of `pairs_of`.

    weight: the cost of an hour of overlap in hours of interruption. every: use every so many decisions, counted back
    from the predecessor's end. render_mode: None or "ansi". Raises what `pairs_of` and `ProvisioningEnv` raise.
    """
    table = pairs_of(data, cluster, window, **scenario)
    return ProvisioningEnv(table, weight=weight, every=every, render_mode=render_mode)

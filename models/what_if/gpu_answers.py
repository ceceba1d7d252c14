"""One cluster's jobs under published GPU schedulers: the question, the replays, and their tables in the lake.

The arithmetic is in `models.what_if`. `baton whatif` stores the answer to the question that it is given. The pipeline
replaces it only when the log, the program or the question declared in clusters.toml changes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from models.engine.engines import engine_of
from models.provisioning import registry
from models.tables import WHAT_IF_GROUPS, WHAT_IF_SCHEDULERS
from simulator.gpu.profiles.table import content_of
from simulator.gpu.registry import check
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.changes import GpuScene
    from models.what_if.schedulers import PlannedGpuReplay, SchedulerOutcome

TABLES = (WHAT_IF_SCHEDULERS, WHAT_IF_GROUPS)
MOST_JOBS = 20_000  # newest jobs that the pipeline replays, by default


@dataclass(frozen=True)
class Question:
    """The schedulers (the first is the base), changes and jobs to replay, and the number of draws.

    `profiles`: none, published, or a path (`simulator.gpu.profiles.table`). `jobs`: number of newest jobs; None: all.
    `from_s`, `until_s`: the span of their submissions, epoch s.
    """

    schedulers: tuple[str, ...] = ("yarn", "tiresias", "srtf")
    changes: tuple[str, ...] = ("nodes=+10%",)
    draws: int = 1
    profiles: str = "none"
    facts: Path | None = None  # file of `--jobs`
    settings: tuple[str, ...] = ()  # of schedulers, for every replay
    is_strict: bool = False
    seed: int = 0
    jobs: int | None = MOST_JOBS
    from_s: int | None = None
    until_s: int | None = None


OF_PODS = Question(
    schedulers=("kubernetes", "yarn", "tiresias"), changes=("kubernetes.gang=1", "nodes=+10%")
)  # the default for a log of pods


def declared(data: DataFolder, settings: ClusterSettings) -> Question:
    """Return the pipeline's question: the cluster's `what_if` in clusters.toml, else the default for such a log.

    Raises InputError for an unknown scheduler.
    """
    from models.what_if.gpu_scene import names_pods

    own = settings.what_if
    usual = OF_PODS if names_pods(data, settings) else Question()
    question = Question(
        schedulers=tuple(own.get("schedulers", usual.schedulers)),
        changes=tuple(own.get("changes", usual.changes)),
        draws=int(own.get("seeds", usual.draws)),
        profiles=str(own.get("profiles", usual.profiles)),
        jobs=int(own.get("jobs", MOST_JOBS)),
    )
    for name in question.schedulers:
        check(name, {})
    return question


def why_not(data: DataFolder, settings: ClusterSettings) -> str | None:
    """Explain in one sentence why the cluster's jobs are not replayed under GPU schedulers; None if they are."""
    if not ran_on_gpus(data, settings.name):
        return f"the log of cluster {settings.name!r} holds no job that ran on GPUs"
    listed = warehouse.read(
        data, "SELECT count(*) AS nodes FROM nodes WHERE cluster = ? AND gpus > 0", (settings.name,)
    )
    if not listed["nodes"][0] and not (settings.nodes and settings.gpus_per_node):
        return (
            f"the number of GPUs of cluster {settings.name!r} is unknown: give --nodes and --gpus-per-node, or declare "
            "them in clusters.toml"
        )
    return None


def ran_on_gpus(data: DataFolder, cluster: str) -> bool:
    """Whether a job of the cluster ran on GPUs."""
    ran = warehouse.read(
        data,
        "SELECT count(*) AS jobs FROM jobs WHERE cluster = ? AND run_s > 0 AND submit_utc IS NOT NULL "
        "AND greatest(coalesce(allocated_gpus, 0), coalesce(requested_gpus, 0)) > 0",
        (cluster,),
    )
    return bool(ran["jobs"][0])


def asked(data: DataFolder, settings: ClusterSettings, question: Question) -> list[PlannedGpuReplay]:
    """Plan the replays that answer the question. Raises InputError for unknown names and impossible changes."""
    from models.what_if.changes import with_settings
    from models.what_if.schedulers import combinations

    scene = with_settings(scene_of(data, settings, question), question.settings, question.schedulers)
    return combinations(scene, question.schedulers, question.changes, question.draws)


def scene_of(data: DataFolder, settings: ClusterSettings, question: Question) -> GpuScene:
    """Read the cluster and the jobs of the question."""
    from models.what_if.gpu_scene import read_scene
    from simulator.gpu.profiles.table import profiles_of

    return read_scene(
        data,
        settings,
        profiles=profiles_of(question.profiles),
        facts=question.facts,
        is_strict=question.is_strict,
        seed=question.seed,
        from_s=question.from_s,
        until_s=question.until_s,
        newest=question.jobs,
    )


def answer(
    data: DataFolder,
    settings: ClusterSettings,
    question: Question,
    report: Callable[[str], None] = lambda _name: None,
    workers: int | None = None,
) -> list[pl.DataFrame]:
    """Make the two tables of TABLES. Raises InputError as `asked` does."""
    from models.what_if.differences import frames
    from models.what_if.schedulers import replays

    every = asked(data, settings, question)
    return frames(settings.name, every, replays(every, report, workers, engine_of(data.root)))


def made_from(data: DataFolder, settings: ClusterSettings) -> str:
    """Return the digest of the inputs of the pipeline's own answer."""
    return f"{_until(data, settings)}-declared-{digest(_machine(settings))}"


def kept(data: DataFolder, settings: ClusterSettings) -> list[pl.DataFrame] | None:
    """Return the tables that `baton whatif` left, while they are valid; None without any."""
    stored = {derived.made_from(data, table.name, settings.name) for table in TABLES}
    if len(stored) != 1 or not (stored.pop() or "").startswith(f"{_until(data, settings)}-asked-"):
        return None
    with suppress(InputError, WorkError):  # gone in between, or damaged
        return [derived.read(data, table.name, settings.name) for table in TABLES]
    return None


def keep(
    data: DataFolder,
    settings: ClusterSettings,
    question: Question,
    every: list[PlannedGpuReplay],
    outcomes: list[SchedulerOutcome],
) -> None:
    """Store the answer to a question given by hand.

    After a kill between its two tables neither answer counts, and the next run answers the question again.
    """
    from models.what_if.differences import frames

    facts = b"" if question.facts is None else question.facts.read_bytes()
    own = digest(astuple(replace(question, facts=None)), _machine(settings), content_of(question.profiles), facts)
    fingerprint = f"{_until(data, settings)}-asked-{own}"
    for table, frame in zip(TABLES, frames(settings.name, every, outcomes), strict=True):
        derived.write(data, table, settings.name, frame, fingerprint)


def _machine(settings: ClusterSettings) -> tuple[object, ...]:
    """Return the declared machine and queues; the order of the GPU types is that of the nodes."""
    types = list(settings.gpu_types.items())
    return settings.nodes, settings.gpus_per_node, types, sorted(settings.quotas.items()), settings.queues


def _until(data: DataFolder, settings: ClusterSettings) -> str:
    """Return the digest of the log, the code and the declared question."""
    code = code_digest(__name__, but=(registry.__name__,))  # tables name its worlds; policies do not count
    own = content_of(str(settings.what_if.get("profiles", "none")))
    return digest(warehouse.made_from(data, settings.name), sorted(settings.what_if.items()), own, code)

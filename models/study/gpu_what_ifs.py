"""One cluster's jobs under published GPU schedulers: what is asked, read, replayed, and kept as tables of the lake.

The arithmetic is in `models.what_if`. What `baton whatif` was asked by hand stays in the tables until the log, the
program or the question declared in clusters.toml changes; until then the pipeline makes nothing of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

import polars as pl

from models import registry
from models.tables import WHAT_IF_GROUPS, WHAT_IF_SCHEDULERS
from simulator.gpu.registry import check
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.what_if.changes import Scene
    from models.what_if.schedulers import Asked, Outcome

TABLES = (WHAT_IF_SCHEDULERS, WHAT_IF_GROUPS)
MOST_JOBS = 20_000  # of the newest jobs that the pipeline replays, where no other number is declared


@dataclass(frozen=True)
class Question:
    """Which schedulers, the first is the base, with which changes, on which jobs, and how often what is drawn is drawn.

    `jobs`: the newest so many; None takes all. `from_s`, `until_s`: those submitted in between, epoch s.
    """

    schedulers: tuple[str, ...] = ("yarn", "tiresias", "srtf")
    changes: tuple[str, ...] = ("nodes=+10%", "mix=none")
    draws: int = 3
    profiles: bool = True
    seed: int = 0
    jobs: int | None = MOST_JOBS
    from_s: int | None = None
    until_s: int | None = None


OF_PODS = Question(
    schedulers=("kubernetes", "yarn", "tiresias"), changes=("kubernetes.gang=1", "nodes=+10%", "mix=none")
)  # what is asked of a log of pods


def declared(data: DataFolder, settings: ClusterSettings) -> Question:
    """What the pipeline asks of the cluster: its `what_if` in clusters.toml over what is usual for such a log.

    Raises InputError for a scheduler that is not known.
    """
    from models.study.gpu_scene import names_pods

    told = settings.what_if
    usual = OF_PODS if names_pods(data, settings) else Question()
    question = Question(
        schedulers=tuple(told.get("schedulers", usual.schedulers)),
        changes=tuple(told.get("changes", usual.changes)),
        draws=int(told.get("seeds", usual.draws)),
        jobs=int(told.get("jobs", MOST_JOBS)),
    )
    for name in question.schedulers:
        check(name, {})
    return question


def why_not(data: DataFolder, settings: ClusterSettings) -> str | None:
    """Why the cluster's jobs are not replayed under GPU schedulers, in one sentence; None where they are."""
    if not ran_on_gpus(data, settings.name):
        return f"the log of cluster {settings.name!r} holds no job that ran on GPUs"
    listed = warehouse.read(
        data, "SELECT count(*) AS nodes FROM nodes WHERE cluster = ? AND gpus > 0", (settings.name,)
    )
    if not listed["nodes"][0] and not (settings.nodes and settings.gpus_per_node):
        return (
            f"how many GPUs cluster {settings.name!r} has is not known: give --nodes and --gpus-per-node, or declare "
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


def asked(data: DataFolder, settings: ClusterSettings, question: Question) -> list[Asked]:
    """The replays that answer the question, not yet made. Raises InputError for what is not known or not possible."""
    from models.what_if.schedulers import combinations

    return combinations(scene_of(data, settings, question), question.schedulers, question.changes, question.draws)


def scene_of(data: DataFolder, settings: ClusterSettings, question: Question) -> Scene:
    """The cluster and the jobs that the question is about."""
    from models.study.gpu_scene import read_scene

    return read_scene(
        data,
        settings,
        profiles=question.profiles,
        seed=question.seed,
        from_s=question.from_s,
        until_s=question.until_s,
        newest=question.jobs,
    )


def answer(
    data: DataFolder,
    settings: ClusterSettings,
    question: Question,
    tell: Callable[[str], None] = lambda _name: None,
    workers: int | None = None,
) -> list[pl.DataFrame]:
    """The two tables of TABLES. Raises InputError as `asked` does."""
    from models.what_if.differences import frames
    from models.what_if.schedulers import replays

    every = asked(data, settings, question)
    return frames(settings.name, every, replays(every, tell, workers))


def made_from(data: DataFolder, settings: ClusterSettings) -> str:
    """What the pipeline's own answer is made from."""
    return f"{_until(data, settings)}-declared-{digest(_machine(settings))}"


def kept(data: DataFolder, settings: ClusterSettings) -> list[pl.DataFrame] | None:
    """The tables that `baton whatif` left, while they hold; None where there are none."""
    stored = {derived.made_from(data, table.name, settings.name) for table in TABLES}
    if len(stored) != 1 or not (stored.pop() or "").startswith(f"{_until(data, settings)}-asked-"):
        return None
    with suppress(InputError, WorkError):  # gone in between, or damaged
        return [derived.read(data, table.name, settings.name) for table in TABLES]
    return None


def keep(
    data: DataFolder, settings: ClusterSettings, question: Question, every: list[Asked], outcomes: list[Outcome]
) -> None:
    """Stores the answer to a question that was asked by hand, whole: what was stored before it is there until then."""
    from models.what_if.differences import frames

    fingerprint = f"{_until(data, settings)}-asked-{digest(astuple(question), _machine(settings))}"
    for table, frame in zip(TABLES, frames(settings.name, every, outcomes), strict=True):
        derived.write(data, table, settings.name, frame, fingerprint)


def _machine(settings: ClusterSettings) -> tuple[object, ...]:
    """What is declared of the machine; GPU types in their order, which is that of the nodes."""
    types = list(settings.gpu_types.items())
    return settings.nodes, settings.gpus_per_node, types, sorted(settings.quotas.items())


def _until(data: DataFolder, settings: ClusterSettings) -> str:
    """Changes when the log, the code, or the declared question does."""
    code = code_digest(__name__, but=(registry.__name__,))  # tables name its worlds; policies have no part
    return digest(warehouse.made_from(data, settings.name), sorted(settings.what_if.items()), code)

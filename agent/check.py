"""`baton-agent check`: what this Slurm shows, what stands in for the rest and costs, and whether the job can run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.ahead import PAST_S, site_of
from agent.artifact import Artifact
from agent.decide import looks_ahead, trained_capacity
from agent.eyes import CALLS_A_LOOK, CALLS_A_REFRESH, REFRESH_S, Eyes
from agent.hidden_cost import hidden_costs, words_of
from agent.sight import SlurmContext, SlurmRequest, asked_partitions, hidden_features, hides_futures
from agent.slurm.accounting import DAY_S
from agent.slurm.commands import NOT_RUN, Commands, SlurmError
from agent.slurm.queue import Queue, SqueueJob
from agent.slurm.settings import Partition
from features.observe import FILLS, HIDDEN_TOGETHER
from features.snapshot import NO_LIMIT
from traces.counted import counted

PROVED = "22.05"  # the version that the agent is tried on (tests/live)
SIZE_SLACK = 0.2  # of the nodes that a policy was trained on
CLOCK_S = 60  # a larger difference between the two clocks is a warning
GOOD, WARNING, PROBLEM = "good", "warning", "problem"


@dataclass(frozen=True)
class Finding:
    """One thing found out. level: GOOD, WARNING (it works with less), PROBLEM (no chain can be kept). One line."""

    level: str
    subject: str
    text: str


def check(
    commands: Commands,
    request: SlurmRequest,
    *,
    now_s: Callable[[], float],
    trial: Callable[[], object] | None = None,
    artifact: Artifact | None = None,
    first: str = "",
) -> list[Finding]:
    """Look once, as a chain would, apply the refusals of `run`, and try the submission without submitting.

    now_s: this host's clock, epoch s. trial: runs `sbatch --test-only` and raises SlurmError where Slurm would refuse;
    None leaves it out. artifact: the release whose figures say what it costs that something is hidden. first: the id of
    the job that is to be link 1. Raises ValueError for a partition that is not there, or an artifact with other things
    in place of those figures.
    """
    site = site_of(artifact.manifest) if artifact is not None and looks_ahead(artifact) else None
    eyes = Eyes(commands, request, site)
    try:
        queue = eyes.look(int(now_s()))
    except SlurmError as error:
        where = "; run this on a machine that has Slurm's commands" if error.detail.startswith(NOT_RUN) else ""
        return [Finding(PROBLEM, "slurm", f"cannot be read: {error}{where}")]
    scene = eyes.scene
    assert scene is not None
    found = [*_slurm(scene, queue, int(now_s())), *_sizes(scene, request), *_hidden(queue, scene, artifact)]
    if why := wrong_size(artifact, scene.partitions, request.partition):
        found.append(Finding(PROBLEM, "artifact", why))
    if why := wrong_first(first, queue.jobs, request.user):
        found.append(Finding(PROBLEM, "first", why))
    if site is not None:
        found.append(_ahead(hides_futures(queue, scene)))
    if trial is not None:
        found.append(_tried(trial))
    calls = f"{CALLS_A_LOOK} a look and at most {CALLS_A_REFRESH} more in {REFRESH_S // 60} min"
    found.append(Finding(GOOD, "calls", f"{calls}; this check made {commands.calls.total()}"))
    return found


def wrong_size(artifact: Artifact | None, partitions: Mapping[str, Partition], partition: str) -> str:
    """Why a policy is not for a cluster of this size; "" where it is. Raises ValueError for an unknown partition."""
    trained = None if artifact is None else trained_capacity(artifact)
    asked = asked_partitions(dict(partitions), partition)
    sizes = [len(frozenset().union(*(one.nodes for one in some))) for some in (asked, partitions.values())]
    if trained is None or any(abs(size - trained) <= SIZE_SLACK * trained for size in sizes):
        return ""
    return (
        f"trained on a cluster of {counted(trained, 'node')}; this one has {sizes[1]}, of them {sizes[0]} in partition "
        f"{asked[0].name} (allowed: {SIZE_SLACK:.0%} more or fewer)"
    )


def wrong_first(first: str, jobs: Iterable[SqueueJob], user: str) -> str:
    """Why the job of that id cannot be the first link of a chain of `user`; "" where it can, or none is asked for."""
    owner = next((job.user for job in jobs if job.id == first), None)
    if not first or owner == user:
        return ""
    if owner is None:
        return f"first is {first}: no job of that id pends or runs"
    return f"first is {first}: that job is {owner}'s; allowed: one of {user}"


def _slurm(scene: SlurmContext, queue: Queue, now_s: int) -> list[Finding]:
    """The controller, its version, its clock, the accounting, and what could not be parsed."""
    others = len({job.user for job in queue.jobs})
    found = [Finding(GOOD, "queue", f"{counted(len(queue.jobs), 'job')} of {counted(others, 'user')}")]
    if queue.unread:
        found.append(
            Finding(WARNING, "queue", f"{counted(queue.unread, 'row')} of squeue could not be parsed: left out")
        )
    if queue.form:
        found.append(Finding(WARNING, "queue", queue.form))
    settings = scene.settings
    if settings is None:
        return [*found, Finding(WARNING, "slurm", f"its settings cannot be read: {scene.limits_why}")]
    version = f"version {settings.version}"
    if settings.version.startswith(PROVED):
        found.append(Finding(GOOD, "slurm", version))
    else:
        found.append(Finding(WARNING, "slurm", f"{version}; the agent has been tried on {PROVED} alone"))
    apart_s = now_s - settings.now_s
    text = f"this host is {abs(apart_s)} s {'ahead of' if apart_s >= 0 else 'behind'} the controller"
    found.append(Finding(GOOD if abs(apart_s) <= CLOCK_S else WARNING, "clock", text))
    if scene.past_why:
        found.append(Finding(WARNING, "accounting", f"{scene.past_why}; known after a day of looking on"))
    else:
        found.append(Finding(GOOD, "accounting", "shows the jobs of all users"))
    return found


def _sizes(scene: SlurmContext, request: SlurmRequest) -> list[Finding]:
    """Whether the request fits its partition and the limits."""
    asked = asked_partitions(scene.partitions, request.partition)
    names = ",".join(one.name for one in asked)
    place = frozenset[str]().union(*(one.nodes for one in asked))
    longest_s = max(one.limit_s for one in asked)
    found = []
    if request.limit_s > longest_s:
        text = f"a limit of {request.limit_s / 3600:g} h; {names} allows {longest_s / 3600:g} h"
        found.append(Finding(PROBLEM, "partition", text))
    usable = len(place) if scene.nodes is None else scene.nodes.in_service(place)
    if request.nodes > len(place):
        found.append(Finding(PROBLEM, "partition", f"{counted(request.nodes, 'node')}; {names} has {len(place)}"))
    elif request.nodes > usable:
        found.append(
            Finding(WARNING, "partition", f"{counted(request.nodes, 'node')}; of {names} {usable} are in service")
        )
    if not found:
        found.append(Finding(GOOD, "partition", f"{names}: {usable} of {counted(len(place), 'node')} in service"))
    if scene.limits is not None:
        most = (("jobs", scene.limits.jobs), ("nodes", scene.limits.nodes))
        known = ", ".join(f"at most {value} {name} at once" for name, value in most if value < NO_LIMIT)
        found.append(Finding(GOOD, "limits", known or "none on the jobs and nodes of the user"))
    if scene.limits is not None and (scene.limits.jobs < 2 or scene.limits.nodes < 2 * request.nodes):
        text = "the successor cannot start while its predecessor runs, whenever it is submitted"
        found.append(Finding(WARNING, "limits", text))
    return found


def _hidden(queue: Queue, scene: SlurmContext, artifact: Artifact | None) -> list[Finding]:
    """A line for each cause: which features it hides, what stands in for them, and what that costs the artifact."""
    costs = None if artifact is None else hidden_costs(artifact)
    causes: dict[str, list[str]] = {}
    for name, why in hidden_features(queue, scene).items():
        causes.setdefault(why, []).append(name)
    found = []
    for why, names in causes.items():
        lacking = [name for name in names if name not in FILLS]
        if lacking:
            text = f"{why}: no policy can decide without {', '.join(lacking)}; the safe rule stands in"
            found.append(Finding(WARNING, "hidden", text))
        else:
            groups = [group for group, features in HIDDEN_TOGETHER.items() if set(features) <= set(names)]
            cost = "" if costs is None else f"; {words_of(groups, costs)}"
            found.append(Finding(WARNING, "hidden", f"{why}: {', '.join(_filled(names, FILLS))}{cost}"))
    return found or [Finding(GOOD, "hidden", "nothing: every feature is seen")]


def _ahead(why: str) -> Finding:
    """Whether the futures can be played that the artifact decides on."""
    if why:
        return Finding(WARNING, "futures", f"{why}: the policy looks ahead and cannot; the safe rule stands in")
    return Finding(GOOD, "futures", f"can be played: {PAST_S // DAY_S} days of everybody's jobs are known")


def _filled(names: Sequence[str], fills: Mapping[str, float | str]) -> list[str]:
    return [f"{name} = {fills[name] if isinstance(fills[name], str) else format(fills[name], 'g')}" for name in names]


def _tried(trial: Callable[[], object]) -> Finding:
    try:
        trial()
    except SlurmError as error:
        return Finding(PROBLEM, "submission", error.detail)
    return Finding(GOOD, "submission", "Slurm would take it")

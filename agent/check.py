"""`baton-agent check`: what the agent can observe on this Slurm, the fallback for each gap, and a trial submission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.artifact import Artifact
from agent.chains.decide import trained_capacity, uses_futures
from agent.chains.planner import OPEN_SITE
from agent.eyes import CALLS_A_LOOK, CALLS_A_REFRESH, REFRESH_S, Eyes
from agent.futures import PAST_S, site_of
from agent.hidden_cost import hidden_costs, words_of
from agent.sight import SlurmContext, SlurmRequest, asked_partitions, hidden_features, hides_futures
from agent.slurm.commands import NOT_RUN, Commands, SlurmError
from agent.slurm.limits import CHECKING, read_defaults, read_limits
from agent.slurm.queue import Queue, SqueueJob
from agent.slurm.settings import Partition, read_settings
from features.observe import FILLS, HIDDEN_TOGETHER
from features.snapshot import NO_LIMIT
from traces.counted import counted
from traces.units import DAY_S

TESTED = ("22.05", "24.11", "26.05")  # the Slurm versions that the agent is tested on (tests/live)
SIZE_SLACK = 0.2  # allowed difference in size, relative to the cluster that the policy was trained on
CLOCK_S = 60  # a larger difference between the two clocks gives a warning
GOOD, WARNING, PROBLEM = "good", "warning", "problem"


@dataclass(frozen=True)
class Finding:
    """One result of the check, in one line. level: GOOD, WARNING (works with less) or PROBLEM (no chain can run)."""

    level: str
    subject: str
    text: str


def check_agent(
    commands: Commands,
    request: SlurmRequest,
    *,
    now_s: Callable[[], float],
    trial: Callable[[], object] | None = None,
    artifact: Artifact | None = None,
    first: str = "",
    qos: Sequence[str] = (),
    limits: Callable[[int], Sequence[int]] | None = None,
) -> list[Finding]:
    """Look once as a chain would, apply the checks of `run`, and test the submission without submitting.

    now_s: this host's clock, epoch s. trial: runs `sbatch --test-only` and raises SlurmError if Slurm would reject the
    job; None skips it. artifact: the release whose figures give the cost of hidden features. first: the id of the job
    to use as link 1. qos: those that planned links may have. limits: of a plan, returns those that a link may
    ask for, s, from the longest that Slurm allows, s, and raises ValueError if there is none. Raises ValueError for an
    unknown partition, or an artifact with malformed figures.
    """
    site = None if limits is None else OPEN_SITE
    if artifact is not None and uses_futures(artifact):
        site = site_of(artifact.manifest)
    eyes = Eyes(commands, request, site)
    try:
        queue = eyes.look(int(now_s()))
    except SlurmError as error:
        advice = "; run this on a machine that has Slurm's commands" if error.detail.startswith(NOT_RUN) else ""
        return [Finding(PROBLEM, "slurm", f"cannot be read: {error}{advice}")]
    context = eyes.context
    assert context is not None
    found = [*_slurm(context, queue, int(now_s())), *_sizes(context, request), *_hidden(queue, context, artifact)]
    if not context.partitions_why and (why := wrong_size(artifact, context.partitions, request.partition)):
        found.append(Finding(PROBLEM, "artifact", why))
    if why := wrong_first(first, queue.jobs, request.user):
        found.append(Finding(PROBLEM, "first", why))
    if not context.partitions_why and (why := wrong_partition(commands, context.partitions, request)):
        found.append(Finding(PROBLEM, "partition", why))
    if limits is not None and not context.partitions_why:
        found.append(_chosen("plan", lambda: _asked_text(limits(eyes.allowed()[0]))))
    if qos:
        found.append(_chosen("qos", lambda: qos_choice(commands, context.partitions, request, qos)))
    if site is not None:
        found.append(_ahead(hides_futures(queue, context), is_planned=limits is not None))
    if trial is not None:
        found.append(_tried(trial))
    calls = f"{CALLS_A_LOOK} per look and at most {CALLS_A_REFRESH} more every {REFRESH_S // 60} min"
    found.append(Finding(GOOD, "calls", f"{calls}; this check made {commands.calls.total()}"))
    return found


def wrong_size(artifact: Artifact | None, partitions: Mapping[str, Partition], partition: str) -> str:
    """Explain why a policy does not fit this cluster's size; "" if it does. Raises ValueError: unknown partition."""
    trained = None if artifact is None else trained_capacity(artifact)
    asked = asked_partitions(dict(partitions), partition)
    sizes = [len(frozenset().union(*(one.nodes for one in some))) for some in (asked, partitions.values())]
    if trained is None or any(abs(size - trained) <= SIZE_SLACK * trained for size in sizes):
        return ""
    return (
        f"the policy was trained on a cluster of {counted(trained, 'node')}; this cluster has {sizes[1]} and partition "
        f"{asked[0].name} {sizes[0]} (allowed difference: {SIZE_SLACK:.0%}); "
        "without --artifact the built-in start estimate decides"
    )


def wrong_partition(commands: Commands, partitions: Mapping[str, Partition], request: SlurmRequest) -> str:
    """Explain why Slurm would never start a job of this user's account or QOS in a partition; "" if it may.

    Raises ValueError for an unknown partition.
    """
    closed = [one for one in asked_partitions(dict(partitions), request.partition) if one.allows]
    if not closed:
        return ""
    try:
        account, qos = read_defaults(commands, request.user, request.account)
    except SlurmError:
        return ""  # without accounting there are no accounts
    refusals = [one.refusal(account.lower(), (request.qos or qos).lower()) for one in closed]
    why = next(filter(None, refusals), "")
    return why and f"{why}; choose another partition, --account or --qos"


def qos_choice(
    commands: Commands, partitions: Mapping[str, Partition], request: SlurmRequest, names: Sequence[str]
) -> str:
    """Describe the QOS that planned links may have in place of the script's own.

    Raises ValueError, one line, if one of them is of no use, or an unknown partition; SlurmError.
    """
    settings, asked = read_settings(commands), asked_partitions(dict(partitions), request.partition)
    if not CHECKING & settings.enforced:
        raise ValueError(
            "qos_choice is given, but this Slurm does not check QOS (slurm.conf: AccountingStorageEnforce)"
        )
    table = read_limits(commands, settings, asked[0], user=request.user, account=request.account, qos=request.qos)[1]
    found = []
    for name in names:
        known, others = table.by_name.get(name), [one for one in table.by_name if one != name]
        if known is None:
            raise ValueError(f"qos_choice: user {request.user} may not use QOS {name}; allowed: {', '.join(others)}")
        if why := next(filter(None, (one.refusal("", name.lower()) for one in asked)), ""):
            raise ValueError(f"qos_choice: {why}")
        if known.preempting and name != table.own:
            by = ", ".join(known.preempting)
            raise ValueError(f"qos_choice: jobs of QOS {name} can be preempted by those of {by}; plans ignore that")
        longest_s = min(known.limits.wall_s, (min if settings.needs_all else max)(one.limit_s for one in asked))
        more = settings.qos_weight * (table.factors[name] - table.factors.get(table.own, 0.0))
        found.append(f"{name} (priority {more:+.0f}, at most {longest_s / 3600:g} h, usage x{known.usage_factor:g})")
    return f"a planned link has {table.own or 'the default one'} or {', '.join(found)}"


def wrong_first(first: str, jobs: Iterable[SqueueJob], user: str) -> str:
    """Explain why the job `first` cannot be the first link of a chain of `user`; "" if it can, or none is given."""
    owner = next((job.user for job in jobs if job.id == first), None)
    if not first or owner == user:
        return ""
    if owner is None:
        return f"first is {first}, but no job with that id is pending or running"
    return f"first is {first}, but that job belongs to {owner}; give a job of {user}"


def _slurm(context: SlurmContext, queue: Queue, now_s: int) -> list[Finding]:
    """Report on the queue, unparsed rows, the controller's version and clock, and the accounting."""
    others = len({job.user for job in queue.jobs})
    found = [Finding(GOOD, "queue", f"{counted(len(queue.jobs), 'job')} of {counted(others, 'user')}")]
    if queue.unread:
        found.append(
            Finding(WARNING, "queue", f"{counted(queue.unread, 'row')} of squeue could not be parsed and are left out")
        )
    if queue.form:
        found.append(Finding(WARNING, "queue", queue.form))
    settings = context.settings
    if settings is None:
        return [*found, Finding(WARNING, "slurm", f"its settings cannot be read: {context.limits_why}")]
    version, tested = f"version {settings.version}", ", ".join(TESTED)
    if settings.version.startswith(TESTED):
        found.append(Finding(GOOD, "slurm", f"{version}; the agent is tested on {tested}"))
    else:
        found.append(Finding(WARNING, "slurm", f"{version}; the agent has been tested only on {tested}"))
    apart_s = now_s - settings.now_s
    text = f"this host is {abs(apart_s)} s {'ahead of' if apart_s >= 0 else 'behind'} the controller"
    found.append(Finding(GOOD if abs(apart_s) <= CLOCK_S else WARNING, "clock", text))
    if context.past_why:
        found.append(
            Finding(WARNING, "accounting", f"{context.past_why}; past jobs are known after a day of observing")
        )
    else:
        found.append(Finding(GOOD, "accounting", "shows the jobs of all users"))
    return found


def _sizes(context: SlurmContext, request: SlurmRequest) -> list[Finding]:
    """Report whether the request fits its partition and the limits."""
    if context.partitions_why:
        text = f"{context.partitions_why}; the request cannot be compared with its partition"
        return [Finding(WARNING, "partition", text)]
    asked = asked_partitions(context.partitions, request.partition)
    names = ",".join(one.name for one in asked)
    place = frozenset[str]().union(*(one.nodes for one in asked))
    longest_s = max(one.limit_s for one in asked)
    found = []
    if request.limit_s > longest_s:
        text = f"requested time limit {request.limit_s / 3600:g} h; {names} allows at most {longest_s / 3600:g} h"
        found.append(Finding(PROBLEM, "partition", text))
    usable = len(place) if context.nodes is None else context.nodes.in_service(place)
    if request.nodes > len(place):
        text = f"requested {counted(request.nodes, 'node')}; {names} has only {len(place)}"
        found.append(Finding(PROBLEM, "partition", text))
    elif request.nodes > usable:
        text = f"requested {counted(request.nodes, 'node')}; {names} has only {usable} in service"
        found.append(Finding(WARNING, "partition", text))
    if not found:
        found.append(Finding(GOOD, "partition", f"{names}: {usable} of {counted(len(place), 'node')} in service"))
    if context.limits is not None:
        most = (("jobs", context.limits.jobs), ("nodes", context.limits.nodes))
        known = ", ".join(f"at most {value} {name} at once" for name, value in most if value < NO_LIMIT)
        found.append(Finding(GOOD, "limits", known or "none on the user's jobs and nodes"))
    if context.limits is not None and (context.limits.jobs < 2 or context.limits.nodes < 2 * request.nodes):
        text = "a successor can never start while its predecessor runs, however early it is submitted"
        found.append(Finding(WARNING, "limits", text))
    return found


def _hidden(queue: Queue, context: SlurmContext, artifact: Artifact | None) -> list[Finding]:
    """Report for each cause the features that it hides, their fills, and the cost for the artifact."""
    costs = None if artifact is None else hidden_costs(artifact)
    causes: dict[str, list[str]] = {}
    for name, why in hidden_features(queue, context).items():
        causes.setdefault(why, []).append(name)
    found = []
    for why, names in causes.items():
        lacking = [name for name in names if name not in FILLS]
        if lacking:
            text = f"{why}: no policy can decide without {', '.join(lacking)}; the agent falls back to the safe rule"
            found.append(Finding(WARNING, "hidden", text))
        else:
            groups = [group for group, features in HIDDEN_TOGETHER.items() if set(features) <= set(names)]
            cost = "" if costs is None else f"; {words_of(groups, costs)}"
            found.append(Finding(WARNING, "hidden", f"{why}: {', '.join(_filled(names, FILLS))}{cost}"))
    return found or [Finding(GOOD, "hidden", "nothing: every feature is observed")]


def _ahead(why: str, *, is_planned: bool) -> Finding:
    """Report whether the futures that the plan or the artifact needs can be simulated."""
    if why:
        text = "the policy needs simulated futures; the agent falls back to the safe rule"
        if is_planned:
            text = "without futures a link asks for the script's limit by the start estimate, and one is queued"
        return Finding(WARNING, "futures", f"{why}: {text}")
    return Finding(GOOD, "futures", f"can be simulated: {PAST_S // DAY_S} days of all users' jobs are known")


def _filled(names: Sequence[str], fills: Mapping[str, float | str]) -> list[str]:
    return [f"{name} = {fills[name] if isinstance(fills[name], str) else format(fills[name], 'g')}" for name in names]


def _asked_text(limits_s: Sequence[int]) -> str:
    return f"a link may ask for {', '.join(f'{limit_s / 3600:g} h' for limit_s in limits_s)}"


def _chosen(subject: str, describe: Callable[[], str]) -> Finding:
    try:
        return Finding(GOOD, subject, describe())
    except (SlurmError, ValueError) as error:
        return Finding(PROBLEM, subject, str(error))


def _tried(trial: Callable[[], object]) -> Finding:
    try:
        trial()
    except SlurmError as error:
        return Finding(PROBLEM, "submission", error.detail)
    return Finding(GOOD, "submission", "Slurm would accept the job")

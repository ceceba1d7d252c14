"""`baton plan`: what limit the links of a chain should ask for, how many to queue, and when to submit them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pipelines import completion, options
from pipelines.options import Data, Json
from traces.errors import InputError, WorkError
from traces.units import HOUR_S

if TYPE_CHECKING:
    from agent.eyes import Eyes
    from models.provisioning.service.moment import LinkWaits
    from models.provisioning.service.outlook import ChainWish
    from traces.store.folder import DataFolder

ASSUMED = (
    "in a future, jobs run as similar ones did, arrivals repeat those of the last weeks, and every link of the chain "
    "waits as long as the first; waits count 1.5 times, and one more future has twice the start estimate. Intervals "
    "are of these futures alone, and played chains of one log lost more than expected (docs/agent.md)"
)
HANDS_OVER = "a link that starts early replaces the older one, so the job must save when it is signalled"


class LinkRequest(NamedTuple):
    """What the script and the options ask for."""

    script: Path
    lines: tuple[str, ...]  # options of the script's #SBATCH lines
    own_s: int | None  # the script's time limit, s
    least_s: int  # the script's --time-min, s; 0 if it has none
    given: tuple[int, ...]  # --limits, s
    nodes: tuple[int, ...]  # that links may have, falling from the script's
    scaling: float
    shortens: bool  # --time-min on
    qos_choice: tuple[str, ...]  # QOS that links may have in place of the script's
    partition: str
    user: str
    restart_s: int
    work_s: int
    weight: float  # hours lost that an hour of overlap is worth

    @property
    def own(self) -> tuple[int, ...]:
        """The script's limit, if it has one."""
        return () if self.own_s is None else (self.own_s,)

    @property
    def least(self) -> tuple[int, ...]:
        """The least limit that its links can live with, if it names one."""
        return (self.least_s,) if self.least_s else ()

    def wish(
        self,
        waits_of: Callable[[int], LinkWaits],
        limits_s: tuple[int, ...],
        most_ahead: int,
        nodes: tuple[int, ...],
        qos: str = "",
    ) -> ChainWish:
        """What a chain of links of that QOS is planned for; "": the script's."""
        from agent.artifact import DECIDE_EVERY_S
        from agent.chains.plan import PlanTerms
        from models.provisioning.service.outlook import ChainWish

        terms = PlanTerms(limits_s, self.restart_s, self.weight, DECIDE_EVERY_S, shortens=self.shortens)
        most_s, least_s = self.own_s or 0, self.least_s or self.own_s or 0
        may_get = tuple(limit_s for limit_s in waits_of(nodes[0]).by_limit_s if least_s <= limit_s <= most_s)
        return ChainWish(terms, waits_of, self.work_s, may_get, most_ahead, nodes, self.scaling, qos)


class Seen(NamedTuple):
    """What an instant shows. wishes: one for each QOS, first the script's."""

    wishes: list[ChainWish]
    notes: list[str]


def register(app: typer.Typer) -> None:
    """Add `baton plan`."""
    app.command()(plan)


def plan(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="Job script of the links.")],
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            autocompletion=completion.clusters,
            help="Plan at an instant of this cluster's log; default: now, on this machine's Slurm.",
        ),
    ] = None,
    at: Annotated[str | None, typer.Option("--at", help="Instant of the log (UTC); default: its end.")] = None,
    nodes: Annotated[
        int | None, typer.Option("--nodes", min=1, max=options.MOST_NODES, help="Nodes; default: the script's.")
    ] = None,
    partition: Annotated[str, typer.Option("--partition", help="Partition; default: the script's.")] = "",
    user: Annotated[str, typer.Option("--user", help="User; default: you, and with --cluster a new one.")] = "",
    work: Annotated[str, typer.Option("--work", help="Work of the chain: 10d, or hours.")] = "10d",
    restart_cost: Annotated[
        str, typer.Option("--restart-cost", help="Work lost in each link after the first: saving, reloading.")
    ] = "10m",
    limits: Annotated[
        str | None,
        typer.Option(
            "--limits", help="Limits that a link may ask for: 2h,12h or 2h..24h; default: 2h to 48h and the script's."
        ),
    ] = None,
    ask: Annotated[str, typer.Option("--ask", help="fixed: links ask for the script's limit alone.")] = "any",
    time_min: Annotated[
        str | None,
        typer.Option(
            "--time-min",
            help="on: a link may get less than it asks for, where it then starts sooner; default: on if the script has "
            "--time-min, and then no less than that.",
        ),
    ] = None,
    least_nodes: Annotated[
        int | None, typer.Option("--least-nodes", min=1, help="Fewest nodes on which a link can run; default: all.")
    ] = None,
    scaling: Annotated[
        float, typer.Option("--scaling", min=0.01, max=1.0, help="On n of N nodes a link works (n/N)^SCALING as fast.")
    ] = 1.0,
    qos_choice: Annotated[
        str | None,
        typer.Option("--qos-choice", help="QOS that links may have in place of the script's: A,B; not with --cluster."),
    ] = None,
    overlap_weight: Annotated[
        float, typer.Option("--overlap-weight", min=0.0, max=100.0, help="Hours lost that an hour of overlap counts.")
    ] = 0.5,
    data: Data = None,
    json: Json = False,
) -> None:
    """Recommend the limit of a chain's links, how many to keep queued, and when to submit them.

    docs/agent.md describes the plans and what they assume.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    if at is not None and cluster is None:
        raise InputError(f"--at {at} is an instant of a log: give its --cluster")
    if qos_choice is not None and cluster is not None:
        raise InputError("--qos-choice with --cluster: a log does not show what a QOS allows; ask a live Slurm")
    request = _request(script, (nodes, partition, user), limits, ask, restart_cost)
    request = _varied(request, time_min, least_nodes, ask)
    names = () if qos_choice is None else tuple(dict.fromkeys(qos_choice.split(",")))
    work_s = options.duration_s(work, HOUR_S)  # as `baton-agent run --work` counts
    request = request._replace(scaling=scaling, qos_choice=names, work_s=work_s, weight=overlap_weight)
    with options.output(json) as out:
        if cluster is None:
            seen = _live(request)
        else:
            seen = _recorded(options.data_folder(context, data), cluster, at, request)
        result = _result(request, seen, cluster)
        if json:
            options.write_json(out, result)
        else:
            from reports.text.plans import plan_lines

            out.write(plan_lines(result))


def _request(
    script: Path, given: tuple[int | None, str, str], limits: str | None, ask: str, restart_cost: str
) -> LinkRequest:
    """Read the script and the options; given: --nodes, --partition, --user. Raises InputError."""
    from agent.chains.chain import asked_limit, check_script, least_limit, limits_of, nodes_of, option
    from agent.chains.planner import request_of

    if ask not in ("any", "fixed"):
        raise InputError(f"--ask is {ask!r}; allowed: any or fixed")
    if limits is not None and ask == "fixed":
        raise InputError("--limits with --ask fixed, which allows the script's limit alone: give one of them")
    restart_s = options.duration_s(restart_cost)
    try:
        lines = check_script(script)
        own_s, least_s = asked_limit(lines), least_limit(lines) or 0
        asked_s = () if limits is None else limits_of(limits)
    except ValueError as error:
        raise InputError(str(error)) from error
    if own_s is None and not asked_s:
        instead = "" if ask == "fixed" else ", or give --limits, such as 12h,24h,48h"
        raise InputError(f"{script}: no time limit: set #SBATCH --time there{instead}")
    if nodes_of(lines) is None:
        raise InputError(f"{script}: --nodes is {option(lines, '--nodes', '-N')!r}; write a number such as 2, or 2-4")
    if own_s is not None and least_s > own_s:
        raise InputError(f"{script}: --time-min is {least_s / 3600:g} h, above --time, {own_s / 3600:g} h")
    if ask == "fixed" and own_s is not None:
        asked_s = (own_s,)
    nodes, partition, user = given
    asked = request_of(lines, user, own_s or asked_s[-1])
    count, partition = nodes or asked.nodes, partition or asked.partition
    return LinkRequest(
        script, lines, own_s, least_s, asked_s, (count,), 1.0, False, (), partition, user, restart_s, 0, 0.0
    )


def _varied(request: LinkRequest, time_min: str | None, least_nodes: int | None, ask: str) -> LinkRequest:
    """Let links get less than they ask for, and have fewer nodes, as the agent would. Raises InputError."""
    from agent.chains.chain import OFF, ON
    from agent.chains.plan import node_counts

    if time_min not in (ON, OFF, None):
        raise InputError(f"--time-min is {time_min!r}; allowed: {ON} or {OFF}")
    if time_min == ON and ask == "fixed":
        raise InputError("--time-min on with --ask fixed, which allows the script's limit alone: give one of them")
    (most,) = request.nodes
    if least_nodes is not None and least_nodes > most:
        raise InputError(f"--least-nodes is {least_nodes}; allowed: 1 to {most}, the nodes of a link")
    implied = ON if request.least and ask != "fixed" else OFF
    return request._replace(shortens=(time_min or implied) == ON, nodes=node_counts(most, least_nodes or most))


def _limits(request: LinkRequest, longest_s: int) -> tuple[int, ...]:
    """The limits to compare, s, rising. Raises InputError if none can be planned with."""
    from agent.chains.planner import useful_limits

    own_s = request.own_s or request.given[-1]
    if request.own_s is not None and own_s > longest_s:
        hours = f"{own_s / 3600:g} h, and the longest that is allowed is {longest_s / 3600:g} h"
        raise InputError(f"{request.script}: its time limit is {hours}")
    try:
        least_s = request.least_s if request.shortens else 0
        return useful_limits(request.given, own_s, request.restart_s, longest_s, least_s)
    except ValueError as error:
        raise InputError(str(error)) from error


def _recorded(folder: DataFolder, cluster: str, at: str | None, request: LinkRequest) -> Seen:
    """Look at an instant of a log. Raises InputError."""
    from agent.chains.chain import USUAL_S
    from models.study.chains import waits_at
    from models.study.inputs import why_no_plan
    from traces import clusters
    from traces.store import contents, warehouse

    clusters.resolve(folder, cluster=cluster)
    contents.check_clusters(folder, [cluster])
    if why := why_no_plan(folder, cluster):
        raise InputError(why)
    end_s = int(
        warehouse.read(
            folder, "SELECT epoch(max(submit_utc))::BIGINT + 1 FROM jobs WHERE cluster = ?", (cluster,)
        ).item()
    )
    now_s = end_s if at is None else options.utc_s(at)
    if now_s > end_s:
        raise InputError(f"--at {at} is after the last submission in the log of cluster {cluster!r}")
    of_partitions = (
        "SELECT coalesce(partition, ''), max(limit_s) AS most_s FROM jobs WHERE cluster = ? "
        "AND epoch(submit_utc) < ? GROUP BY ALL HAVING most_s IS NOT NULL ORDER BY ALL"
    )
    longest_s = dict(warehouse.read(folder, of_partitions, (cluster, now_s)).iter_rows())
    if not longest_s:
        raise InputError(f"--at {at}: cluster {cluster!r} has no earlier job with a time limit; give a later instant")
    known = [name for name in longest_s if name]  # some logs name no partition
    asked = [name for name in request.partition.split(",") if name and known]
    if unknown := set(asked).difference(known):
        raise InputError(f"unknown partition {min(unknown)!r} of cluster {cluster!r}; known: {', '.join(known)}")
    if not request.given:
        request = request._replace(given=(*USUAL_S, *request.own, *(request.least if request.shortens else ())))
    limits_s = _limits(request, int(max(longest_s[name] for name in asked or longest_s)))
    asked_s = sorted({*limits_s, *request.own, *request.least})
    waits_of = cache(lambda nodes: waits_at(folder, cluster, now_s, nodes, asked_s, request.user))
    notes = ["all partitions of the log share one pool of nodes here"] if len(longest_s) > 1 else []
    return Seen([request.wish(waits_of, limits_s, 2, request.nodes)], notes)


def _live(request: LinkRequest) -> Seen:
    """Look at this machine's Slurm as an agent does. Raises WorkError if it does not answer, InputError."""
    from dataclasses import replace
    from getpass import getuser

    from agent.chains.bound import BOUND_FILE, links_ahead
    from agent.chains.plan import AHEAD
    from agent.chains.planner import OPEN_SITE, request_of
    from agent.check import qos_choice, wrong_partition
    from agent.eyes import Eyes
    from agent.slurm.commands import Commands, SlurmError
    from agent.slurm_time import SlurmTime
    from models.provisioning.service.moment import live_waits

    user = request.user or getuser()
    asked = request_of(request.lines, user, request.own_s or request.given[-1])
    asked = replace(asked, nodes=request.nodes[0], partition=request.partition)
    commands = Commands()
    eyes = Eyes(commands, asked, OPEN_SITE)
    try:
        eyes.look(SlurmTime(commands).now_s())
        assert eyes.context is not None
        if why := wrong_partition(commands, eyes.context.partitions, asked):
            raise InputError(why)
        longest_s, user_limits = eyes.allowed()
        limits_s = _limits(request, longest_s)
        waits_of = cache(partial(live_waits, eyes, sorted({*limits_s, *request.own, *request.least})))
        notes = []
        if request.qos_choice:
            notes.append(qos_choice(commands, eyes.context.partitions, asked, request.qos_choice))
        futures = waits_of(asked.nodes).futures
        others = [_other_qos(request, eyes, qos) for qos in request.qos_choice if futures and qos != eyes.qos.own]
    except SlurmError as error:
        raise WorkError(f"this machine's Slurm cannot be asked: {error}; or plan from a log: --cluster NAME") from error
    except ValueError as error:
        raise InputError(str(error)) from error
    if not futures:  # as an agent plans then
        limits_s = request.own if request.own_s in limits_s else limits_s
        return Seen([request.wish(waits_of, limits_s, 1, request.nodes[:1])], notes)
    most_ahead = links_ahead(user_limits.submitted, BOUND_FILE)
    if most_ahead < AHEAD:
        notes.append(f"MaxSubmitJobs or {BOUND_FILE} leaves room for one queued link")
    notes += [other for other in others if isinstance(other, str)]
    wishes = [other for other in others if not isinstance(other, str)]
    return Seen([request.wish(waits_of, limits_s, most_ahead, request.nodes), *wishes], notes)


def _other_qos(request: LinkRequest, eyes: Eyes, qos: str) -> ChainWish | str:
    """What a chain under another QOS is planned for; if an agent would leave the QOS out, one line that says why."""
    from agent.chains.bound import BOUND_FILE, links_ahead
    from agent.chains.planner import useful_limits
    from models.provisioning.service.moment import live_waits
    from traces.counted import counted

    longest_s, allowed = eyes.allowed(qos)
    own_s, least_s = request.own_s or request.given[-1], request.least_s if request.shortens else 0
    if request.nodes[0] > min(allowed.nodes, allowed.job_nodes):
        return f"QOS {qos} is left out: it allows no link of {counted(request.nodes[0], 'node')}"
    try:
        limits_s = useful_limits(request.given, own_s, request.restart_s, longest_s, least_s)
    except ValueError as error:
        return f"QOS {qos} is left out: {error}"
    waits_of = cache(partial(live_waits, eyes, limits_s, qos=qos))
    if not waits_of(request.nodes[0]).futures:
        return f"QOS {qos} is left out: {waits_of(request.nodes[0]).why}"
    return request.wish(waits_of, limits_s, links_ahead(allowed.submitted, BOUND_FILE), request.nodes, qos)


def _result(request: LinkRequest, seen: Seen, cluster: str | None) -> dict[str, Any]:
    """The answer, as --json prints it."""
    from models.provisioning.service.outlook import outlooks
    from traces import instants

    found, by_qos = outlooks(seen.wishes), {wish.qos: wish for wish in seen.wishes}
    own = by_qos[""].waits_of(request.nodes[0])
    shown = dict.fromkeys([("", request.nodes[0]), *((row["qos"], row["nodes"]) for row in found["plans"])])
    return {
        "cluster": cluster,
        "live": cluster is None,
        "at_utc": instants.text(own.now_s),
        "at_s": own.now_s,
        "script": str(request.script),
        "nodes": request.nodes[0],
        "least_nodes": request.nodes[-1],
        "scaling": request.scaling,
        "time_min": request.shortens,
        "partition": request.partition,
        "qos_choice": list(request.qos_choice),
        "user": request.user,
        "work_h": request.work_s / HOUR_S,
        "restart_cost_s": request.restart_s,
        "overlap_weight": request.weight,
        "limits_s": list(by_qos[""].terms.limits_s),
        "futures": own.futures,
        **found,
        "notes": _notes(request, seen, [by_qos[qos].waits_of(nodes) for qos, nodes in shown]),
    }


def _notes(request: LinkRequest, seen: Seen, shown: list[LinkWaits]) -> list[str]:
    """What the answer assumes and what it lacks. shown: the waits of the plans, first those of the script's nodes."""
    from agent.chains.chain import option
    from traces.counted import counted

    notes = [ASSUMED, *seen.notes]
    if option(request.lines, "--signal", "--signal") is None:
        notes.append(f"{HANDS_OVER}; the script has no #SBATCH --signal, so it gets SIGTERM")
    else:
        notes.append(HANDS_OVER)
    limits_s = seen.wishes[0].terms.limits_s
    if len(limits_s) == 1:
        notes.append(f"only one limit is compared: {limits_s[0] / HOUR_S:g} h")
    notes += [waits.why if waits.futures else f"{waits.why}; no interval" for waits in shown if waits.why]
    if unstarted := sum(waits.unstarted for waits in shown):
        notes.append(f"{counted(unstarted, 'future')} ended after 4 days, before the link started")
    return notes

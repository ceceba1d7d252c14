"""`baton evaluate --chains`: policies on chains with a wanted service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TextIO

import typer

from models.provisioning.worlds import CHAINS_IN
from pipelines import options
from traces.errors import InputError

if TYPE_CHECKING:
    from models.provisioning.protocol import TrainedPolicy
    from models.study.cluster import Study

Chains = Annotated[
    str | None,
    typer.Option("--chains", help="Compare policies on chains of jobs that do this much work (10d), not on pairs."),
]
RestartCost = Annotated[
    str, typer.Option("--restart-cost", help="Work lost in each link of --chains after the first: saving, reloading.")
]
LimitsOfLinks = Annotated[str, typer.Option("--limits", help="Limits that a link of --chains may ask for (a,b).")]
OverlapWeight = Annotated[
    float, typer.Option("--overlap-weight", min=0.0, max=100.0, help="Hours lost that an hour of overlap is worth.")
]

Agents = Annotated[
    str | None,
    typer.Option("--agents", help="Let agents play --chains for these shares of the window's long jobs (10%,30%)."),
]
CapOfLinks = Annotated[
    str | None,
    typer.Option(
        "--cap", help="Also cap the queued links of --agents, of a user or as a share of the queue (1,2,10%)."
    ),
]

Plots = Annotated[Path | None, typer.Option("--plots", help="Write one HTML page of plots of --chains.")]


class AgentsAsked(NamedTuple):
    """The shares of long jobs that agents play, and the caps: (queued links of a user, share of the queue)."""

    shares: tuple[float, ...]
    caps: tuple[tuple[int | None, float | None], ...]


class ServiceAsked(NamedTuple):
    """The options of a service; durations in s."""

    wanted_s: int
    restart_s: int
    limits_s: tuple[int, ...]
    overlap_weight: float
    agents: AgentsAsked | None = None
    plots: Path | None = None  # page to write


def service_of(
    chains: str | None,
    work: tuple[str, str, float, str | None],
    agents: tuple[str | None, str | None],
    plots: Path | None,
    policies: str,
    world: str,
    others: dict[str, Any],
) -> ServiceAsked | None:
    """Parse the options of a service; None without --chains. Raises InputError, for given `others` too.

    work: --restart-cost, --limits, --overlap-weight, and --limit, the least limit of a first link. agents: --agents,
    --cap.
    """
    if chains is None:
        for option, value in {"--agents": agents[0], "--cap": agents[1], "--plots": plots}.items():
            if value is not None:
                raise InputError(f"{option} {value} without --chains; give the work of a chain, such as --chains 10d")
        return None
    from models.provisioning.scenario import LEAST_RECORDED_LIMIT_S, LIMIT_S
    from models.provisioning.service.names import ELASTIC, TIME_MIN, check_service

    for option, value in others.items():
        if value is not None:
            raise InputError(f"{option} {value} with --chains {chains}; leave out one of them")
    if world not in CHAINS_IN:
        known = " and ".join(CHAINS_IN)
        raise InputError(f"--chains {chains} with --world {world}; chains are played in --world {known}")
    for name in options.names(policies):
        if name in (TIME_MIN, ELASTIC) and agents[0] is not None:
            raise InputError(f"--policies {name} with --agents {agents[0]}: it plays chains one at a time")
    if agents[0] is not None and world != CHAINS_IN[0]:
        raise InputError(f"--agents {agents[0]} with --world {world}; agents are simulated in --world {CHAINS_IN[0]}")
    restart_cost, limits, weight, own = work
    limits_s = tuple(sorted({options.duration_s(text) for text in options.names(limits)}))
    if not limits_s:
        raise InputError("--limits is empty; give durations (a,b) such as 12h,48h")
    restart_s = options.duration_s(restart_cost, least_s=0)
    asked = ServiceAsked(options.duration_s(chains), restart_s, limits_s, weight, plots=plots)
    default_s = LEAST_RECORDED_LIMIT_S if world == CHAINS_IN[0] else LIMIT_S
    own_s = default_s if own is None else options.duration_s(own)
    check_service(asked.wanted_s, asked.restart_s, limits_s, own_s)
    if plots is not None and agents[0] is not None:
        raise InputError(f"--plots {plots} with --agents; the page shows chains that are played one at a time")
    options.check_targets({"--plots": plots})
    return asked._replace(agents=_agents_of(*agents, policies))


def _agents_of(agents: str | None, cap: str | None, policies: str) -> AgentsAsked | None:
    """Parse --agents and --cap. Raises InputError for impossible ones."""
    if agents is None:
        if cap is not None:
            raise InputError(f"--cap {cap} without --agents; give the shares of long jobs that agents play (10%,30%)")
        return None
    from features.conventions import ORACLE

    if ORACLE in options.names(policies):
        raise InputError(f"--policies {ORACLE} with --agents; nobody knows a start that depends on all agents")
    shares = tuple(_share(text, "--agents") for text in options.names(agents))
    caps: list[tuple[int | None, float | None]] = [(None, None)]
    for text in options.names(cap or ""):
        is_share = text.endswith("%")
        caps.append((None, _share(text, "--cap")) if is_share else (options.whole_numbers(text, "--cap")[0], None))
    if not shares:
        raise InputError("--agents is empty; give shares (a,b) such as 10%,30%")
    if cap is not None and len(caps) == 1:
        raise InputError("--cap is empty; give links of a user or shares of the queue (a,b) such as 1,10%")
    return AgentsAsked(shares, tuple(caps))


def _share(text: str, option: str) -> float:
    """Parse a share such as 10%. Raises InputError unless it is over 0 and at most 100 %."""
    number = text.removesuffix("%")
    if not (text.endswith("%") and number.replace(".", "", 1).isdecimal() and 0 < float(number) <= 100):
        raise InputError(f"{option} {text}: give a share over 0% and at most 100%")
    return float(number) / 100


def service_policies(text: str) -> tuple[list[str], list[str]]:
    """Parse --policies: all names, and those of them that are fitted. Raises InputError for an unknown one."""
    from models.provisioning.registry import is_known, make_policy
    from models.provisioning.service.names import check_service_policies

    names = options.names(text)
    if not names:
        raise InputError("--policies is empty; give policy names (a,b)")
    check_service_policies(names)
    return names, [name for name in names if is_known(name) and make_policy(name).is_learned]


def of_pairs(policies: str) -> str:
    """Return --policies. Raises InputError for a policy that plans chains, which pairs cannot judge."""
    from models.provisioning.registry import PLANS, plans_chains

    for name in options.names(policies):
        if name in PLANS or plans_chains(name):
            raise InputError(f"policy {name!r} plans chains, which pairs cannot judge: give --chains 10d")
    return policies


def evaluate_service(
    out: TextIO,
    study: Study,
    policies: Sequence[str],
    trained: tuple[Sequence[TrainedPolicy], int],
    bounds: tuple[int, int],
    asked: ServiceAsked,
    json: bool,
) -> None:
    """Play the chains that begin within `bounds` (epoch s), write their rows, and the page of them.

    trained: the fits of learners, and the latest end of their fit windows, epoch s; 0 without a learner. Settings are
    chosen from that end to the bounds; without a learner, from the start of the cluster's select window.
    """
    from models.provisioning.service.play import Service
    from models.study import comparisons
    from models.study.chains import service_rows
    from models.study.windows import Window
    from reports.text.service import format_agents, format_services

    report = Window(*bounds, study.scenario.decide_every_s)
    service = Service(asked.wanted_s, asked.restart_s, report.decision_s, asked.limits_s)
    fits, fitted_until_s = trained
    for warning in comparisons.warnings_about(study, report, fitted_until_s):
        options.say(f"warning: {warning}")
    select = comparisons.select_window(fitted_until_s or study.windows.select.from_s, report)
    if asked.agents is None:
        rows = service_rows(study, policies, fits, report, select, service, asked.overlap_weight)
        answer, text = {"chains": rows}, format_services
        if asked.plots is not None:
            from reports.service import write_service_page
            from reports.source import Source

            write_service_page(asked.plots, Source(study.data, study.scenario.cluster), rows, str(report))
    else:
        from models.what_if.agents.answer import agents_rows
        from models.what_if.agents.play import LinkCap

        caps = [LinkCap(*cap) for cap in asked.agents.caps]
        rows = agents_rows(
            study, policies, fits, report, select, service, asked.overlap_weight, asked.agents.shares, caps
        )
        answer, text = {"agents": rows}, format_agents
    if json:
        options.write_json(out, answer | {"is_development_window": comparisons.is_development(study, report)})
    else:
        out.write(f"{text(rows)}\n")

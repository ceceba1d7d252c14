"""A chain of links that has to deliver a wanted service: its state, and what a player may see of it and do.

A *link* is a job of the chain. Of the links that run, the one that started first *serves*: the work goes on in it.
When it ends, the next running link takes over, or the first that starts later; the time in between is an
*interruption*. Taking over costs `restart_s` of the link (saving and reloading). A link that ends before it could take
over never serves. The chain is finished when the work done reaches the wanted service. What still runs or waits then is
cancelled.

A player acts at decision instants only, as an agent does that looks at the queue every few minutes. It may submit
links, cancel queued ones (scancel of a pending job costs nothing), and end running ones (scancel of a running job).
A link that started too early has thus held its nodes until the next decision, and this counts as overlap. To *hand
over* is to end the serving link although a later one runs: the job must be able to save when it is signalled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from simulator.recorded.record import NEVER
from traces.arrays import Float32s, Int64s


class LinkShape(NamedTuple):
    """What a link asks for besides its limit, and how fast it works then."""

    least_s: int | None = None  # the least limit that it may get (--time-min); None: no less than asked
    nodes: int | None = None  # None: as the job that the first link replaces
    share: float = 1.0  # of that job's nodes
    speed: float = 1.0  # work done in an hour


PLAIN = LinkShape()
NOTHING: Mapping[int, int] = MappingProxyType({})  # no link gets another limit


@dataclass
class Link:
    """A submitted job of a chain; times in epoch s."""

    limit_s: int
    submit_s: int
    start_s: int = NEVER  # NEVER while it is queued
    end_s: int = NEVER  # by its limit, or earlier if the player ended it
    shape: LinkShape = PLAIN

    @property
    def fits_s(self) -> int:
        """The limit with which the scheduler places it while it is queued."""
        return self.shape.least_s or self.limit_s

    def work_left(self, now_s: int) -> float:
        """The work that it can still do, s."""
        return self.shape.speed * (self.end_s - now_s)


@dataclass(frozen=True)
class Move:
    """The actions of a player at one decision, and when it wants to decide again."""

    submit: tuple[int, ...] = ()  # limits of links to submit, s
    cancel: tuple[int, ...] = ()  # positions among the queued links
    end: tuple[int, ...] = ()  # positions among the running links
    again_s: int | None = None  # no decision before this instant unless a link starts; None: the next instant
    chosen: tuple[int, int] | None = None  # of a clairvoyant player: submission and start of the next link
    shape: LinkShape = PLAIN  # of the submitted links

    @property
    def is_action(self) -> bool:
        """Whether it changes the chain."""
        return bool(self.submit or self.cancel or self.end or self.chosen)


WAIT = Move()


@dataclass
class ServiceChain:
    """A chain under one player."""

    number: int  # of the predecessor that its first link replaces
    limit_s: int  # that the user asks for, s
    started: list[Link]  # in order of start
    queued: list[Link] = field(default_factory=list)  # in order of submission
    due_s: int = NEVER  # when the first of the queued links starts, by the latest simulation
    due: dict[int, int] = field(default_factory=dict)  # positions of the links that start then, with their limits, s
    ask_s: int = NEVER  # the next decision
    most_queued: int = 0
    memory: Any = None  # of the player, until the chain changes

    @property
    def covered_until_s(self) -> int:
        """When the last of the links that have started ends, epoch s; decisions are counted back from here."""
        return max(link.end_s for link in self.started)

    def running(self, now_s: int) -> list[Link]:
        """The links that hold nodes at `now_s`; a link that ends in that second still does."""
        return [link for link in self.started if link.end_s >= now_s]


@dataclass(frozen=True)
class ServiceView:
    """What a player may use at a decision."""

    now_s: int
    chain: ServiceChain
    running: Sequence[Link]
    limits_s: tuple[int, ...]  # that a link may ask for, s, rising
    wanted_left_s: int  # work that is still to be done at `now_s`
    restart_s: int
    nodes: int
    """Nodes of the chain's first link."""
    observe: Callable[..., Float32s]
    """observe(limit_s, nodes=None): the observation before a link of that limit (features.observe.FEATURES)."""
    futures: Callable[..., Int64s] | None
    """futures(limits_s, horizon_s, nodes=None, delay_s=0): starts, epoch s, of a link of each limit submitted after the
    delay, behind the queued links, in each future; at the horizon, counted from now, if it has not started by then.
    Int64, (limits, futures). None where the world has no futures, as the next one."""
    queued_futures: Callable[..., Int64s] | None
    """queued_futures(horizon_s, limit_s=None): the same for the last of the queued links, (futures,), also if it had
    another limit."""
    would_start: Callable[[int], int] | None
    """would_start(limit_s): when a link submitted now will start. Only a clairvoyant player may ask; None
    where the start depends on other agents."""

    @property
    def left_s(self) -> int:
        """Time until the last running link ends; negative in an interruption."""
        return self.chain.covered_until_s - self.now_s


class ChainPlayer(Protocol):
    """Decides for chains."""

    def act(self, view: ServiceView) -> Move:
        """Decide at one instant; called again after every start of a link, and at `Move.again_s`."""
        ...


def hand_over(view: ServiceView) -> Move | None:
    """End all running links but the one that can do most work, which ends last if all are alike; None if one runs."""
    alive = [place for place, link in enumerate(view.running) if link.end_s > view.now_s]
    if len(alive) < 2:
        return None
    kept = max(alive, key=lambda place: view.running[place].work_left(view.now_s))
    return Move(end=tuple(place for place in alive if place != kept))


@dataclass(frozen=True)
class WorkDone:
    """The work of a chain, from its first start to the end of its links or of its work; times in s."""

    done_s: int  # work done
    until_s: int  # epoch s: when the work was finished, else the end of the links
    interruptions: tuple[tuple[int, int], ...]  # (begin, end), epoch s
    restarts: int
    restart_s: int  # lost in restarts
    slow_s: int  # lost in links of fewer nodes
    held_s: int  # by all links until `until_s`
    node_s: float  # the same as a share of the first job's nodes
    is_finished: bool


def work_of(started: Sequence[Link], wanted_s: int, restart_s: int) -> WorkDone:
    """The work that links (in order of start) do until `wanted_s` of it is done. See the module for the rules."""
    at = started[0].start_s
    done, lost, slow, restarts, interruptions = 0, 0, 0, 0, []
    for place, link in enumerate(started):
        begin = max(link.start_s, at)
        if place and link.end_s <= begin:
            continue
        if begin > at:
            interruptions.append((at, begin))
        cost = min(restart_s, link.end_s - begin) if place else 0
        restarts, lost = restarts + (place > 0), lost + cost
        served = link.end_s - begin - cost
        more = round(link.shape.speed * served)
        if done + more >= wanted_s:
            served = round((wanted_s - done) / link.shape.speed)
            at, slow, done = begin + cost + served, slow + served - (wanted_s - done), wanted_s
            break
        at, slow, done = link.end_s, slow + served - more, done + more
    held = [(max(min(link.end_s, at) - link.start_s, 0), link.shape.share) for link in started]
    held_s, node_s = sum(each for each, _ in held), sum(each * share for each, share in held)
    return WorkDone(done, at, tuple(interruptions), restarts, lost, slow, held_s, node_s, done >= wanted_s)

"""The twin of YARN's queues: a tree of objects, every count made anew where it is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.gpu.algorithms.placement import packed
from tests.twins.gpu.groups import fits_without, stop_if_it_ran
from tests.twins.gpu.job import PlainGpuJob, PlainGpuWorld, PlainQueue, start
from traces.files.queue_tree import REST, DeclaredQueue

_NEAR = 1e-6


def plain_tree(gpus: int, groups: Sequence[str], declared: Sequence[DeclaredQueue]) -> list[PlainQueue]:
    """Return the queues, the root first; without declared ones a queue a group, all of one weight."""
    root = PlainQueue(None, gpus, gpus, gpus)
    if not declared:
        root.children = [PlainQueue(root, gpus / len(groups), gpus, groups={at}) for at in range(len(groups))]
        return [root, *root.children]
    made: dict[str | None, PlainQueue] = {None: root}
    named = {queue.name for queue in declared if queue.is_leaf}
    for one in declared:
        above = made[one.parent]
        own = round(above.guaranteed * one.capacity / 100, 6)
        most, least = round(above.most * one.most / 100, 6), round(above.least * one.least / 100, 6)
        bound = own * one.user_limit_factor if one.user_limit_factor and own else gpus
        queue = made[one.path] = PlainQueue(above, own, most, least, one.user_limit / 100, bound)
        if one.is_leaf:
            queue.groups = {
                at for at, group in enumerate(groups) if group == one.name or (one.name == REST and group not in named)
            }
        above.children.append(queue)
        above.children.sort(key=lambda queue: -queue.guaranteed)
    return list(made.values())


def capacity(world: PlainGpuWorld) -> None:
    """Decide as the Capacity scheduler."""
    _decide(world, False)


def fair(world: PlainGpuWorld) -> None:
    """Decide as the Fair scheduler."""
    _decide(world, True)


def _decide(world: PlainGpuWorld, is_fair: bool) -> None:
    before = [job for job in world.there if job.placed]
    _serve(world, is_fair)
    if world.cluster.gpus - world.free[:, 0].sum() < world.knobs["reclaim_at"] * world.cluster.gpus:
        return
    shares = {id(queue): queue.guaranteed for queue in world.tree}
    if is_fair:
        shares[id(world.tree[0])] = world.cluster.gpus
        _divide(world, world.tree[0], shares)
    changed = False
    for job in world.there:
        if not job.placed and _user_may(world, job):
            changed |= _reclaim(world, job, shares, before)
    if changed:
        _serve(world, is_fair)


def _jobs(world: PlainGpuWorld, queue: PlainQueue) -> list[PlainGpuJob]:
    return [job for job in world.there if queue in _leaf(world, job).path()]


def _leaf(world: PlainGpuWorld, job: PlainGpuJob) -> PlainQueue:
    return next(queue for queue in world.tree if job.group in queue.groups)


def _held(world: PlainGpuWorld, queue: PlainQueue) -> int:
    return sum(job.gpus for job in _jobs(world, queue) if job.placed)


def _rank(world: PlainGpuWorld, queue: PlainQueue, is_fair: bool) -> tuple[int, float]:
    held = _held(world, queue)
    least = min(queue.least, sum(job.gpus for job in _jobs(world, queue)))
    if is_fair and held < least:
        return 0, held / least
    return 1, held / max(queue.guaranteed, 1e-9)


def _most_nodes(world: PlainGpuWorld, job: PlainGpuJob) -> int | None:
    fewest = len(packed(world.cluster.capacity[:, 0], job.gpus) or ())
    return fewest if world.now - job.submit < world.knobs["hold_s"] else None


def _user_may(world: PlainGpuWorld, job: PlainGpuJob) -> bool:
    leaf = _leaf(world, job)
    own = [one for one in _jobs(world, leaf) if one.user == job.user]
    held = sum(one.gpus for one in own if one.placed)
    if job.user < 0 or held == 0 or leaf.user_most == float("inf"):
        return True
    whole = max(leaf.guaranteed, _held(world, leaf) + job.gpus)
    users = len({one.user for one in _jobs(world, leaf) if not one.placed})
    return held + job.gpus <= min(max(whole / users, whole * leaf.user_part), leaf.user_most) + _NEAR


def _below_most(world: PlainGpuWorld, job: PlainGpuJob, freed: Sequence[PlainGpuJob] = ()) -> bool:
    return all(
        _held(world, queue) - sum(one.gpus for one in freed if one in _jobs(world, queue)) + job.gpus
        <= queue.most + _NEAR
        for queue in _leaf(world, job).path()
    )


def _serve(world: PlainGpuWorld, is_fair: bool) -> None:
    """Try each waiting job once, that of the queue in turn first; try all again after a job of a user started."""
    again = True
    while again:
        again = False
        untried = [job for job in world.there if not job.placed]
        while untried and world.free[:, 0].sum() > 0:
            queue = world.tree[0]
            while queue.children:
                open_ones = [one for one in queue.children if any(one in _leaf(world, job).path() for job in untried)]
                queue = min(open_ones, key=lambda one: _rank(world, one, is_fair))
            job = next(job for job in untried if _leaf(world, job) is queue)
            untried.remove(job)
            if _below_most(world, job) and _user_may(world, job):
                again |= start(job, world.free, world.now, _most_nodes(world, job)) and job.user >= 0


def _divide(world: PlainGpuWorld, queue: PlainQueue, shares: dict[int, float]) -> None:
    """Fill the children with jobs like vessels, until the queue's share is used up."""
    busy = [child for child in queue.children if _jobs(world, child)]
    shares.update({id(child): 0.0 for child in queue.children})
    factor: Callable[[PlainQueue, float], float] = lambda child, by: min(  # noqa: E731
        max(by * child.guaranteed, child.least), child.most
    )
    low, high = 0.0, 2.0**60
    for _ in range(200):
        middle = (low + high) / 2
        if sum(factor(child, middle) for child in busy) < shares[id(queue)] - 1e-12:
            low = middle
        else:
            high = middle
    for child in busy:
        shares[id(child)] = factor(child, high)
        _divide(world, child, shares)


def _entitled(world: PlainGpuWorld, queue: PlainQueue, gpus: int, shares: dict[int, float]) -> bool:
    return _held(world, queue) + gpus <= shares[id(queue)] + _NEAR


def _reclaim(world: PlainGpuWorld, job: PlainGpuJob, shares: dict[int, float], before: Sequence[PlainGpuJob]) -> bool:
    """Stop the youngest jobs that may be stopped for the job and start it; try jobs of at least 1, 2, 4, ... GPUs."""
    path = _leaf(world, job).path()
    entitled = [_entitled(world, queue, job.gpus, shares) for queue in path[:-1]]
    open_ones = [queue for at, queue in enumerate(path) if at and all(entitled[:at])]
    youngest = sorted(world.there, key=lambda one: (one in before, -one.number))
    for least in (2**power for power in range(job.gpus.bit_length())):
        freed: list[PlainGpuJob] = []
        for other in youngest:
            if other.placed and other.gpus >= least:
                above = _leaf(world, other).path()
                common = next(queue for queue in above if queue in path)
                lost = [queue for queue in above if queue not in path]
                gone = {id(q): sum(one.gpus for one in [*freed, other] if one in _jobs(world, q)) for q in lost}
                if common in open_ones and all(_held(world, q) - gone[id(q)] >= shares[id(q)] - _NEAR for q in lost):
                    freed.append(other)
        if open_ones and _below_most(world, job, freed) and fits_without(world, job, freed, _most_nodes(world, job)):
            for other in sorted(freed, key=lambda one: (one not in before, one.number)):
                fewer = [one for one in freed if one is not other]
                if _below_most(world, job, fewer) and fits_without(world, job, fewer, _most_nodes(world, job)):
                    freed = fewer
            for other in freed:
                stop_if_it_ran(world, other, before)
            assert start(job, world.free, world.now, _most_nodes(world, job))
            return True
    return False

"""How long a job will run, given who submitted what and how long it has run: a distribution, from jobs that had ended.

Like jobs are looked for on four levels: the same user and name, the same user, the same limit, anybody. On each, those
of the LAST jobs that ended before the instant that ran for a longer share of their limits than this one has. A level
with m of them gets m / (m + PRIOR) of the weight that the levels before it left, shared alike; the last level gets the
rest. So a user's habit with a script counts as soon as it shows, and a job of which nothing is known runs like others.

Shares of limits and not seconds: users change limits and habits together. Where nobody has run for longer, the run is
uniform between what has passed and the limit.

Jobs that still run are not counted as censored (Kaplan and Meier, JASA 53, 1958): tried, that was no better
(docs/results.md). Plain functions over numpy arrays, which numba compiles as they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

LAST = 48  # jobs looked at on a level
PRIOR = (3.0, 12.0, 12.0)  # like jobs with which a level gets half of what the levels before it left
LEVELS = 4
ROOM = LEVELS * LAST  # of the arrays that `like_runs` writes
LEAST_LEFT_S = 60  # a job past its limit is within Slurm's KillWait and about to go
NOBODY = -1  # in place of a group that no job is in
MOST_NAMES = 1 << 31


class RunTimeHistory(NamedTuple):
    """Ended jobs by level and group: those of group g are rows first[g] .. first[g + 1] - 1, by end.

    The groups of level 0 come first, then those of level 1, ...; `level` says where each level's begin.
    """

    first: Int64s  # (groups of all levels + 1,)
    level: Int64s  # (LEVELS,)
    end_s: Int64s  # (LEVELS * jobs,) epoch s
    share: Float64s  # (LEVELS * jobs,) run time over limit, at most 1
    names: Int64s  # (groups of level 0,) user * MOST_NAMES + name, rising
    limits: Int64s  # (groups of level 2,) rising


def history(end_s: Int64s, run_s: Int64s, limit_s: Int64s, user: Int64s, name: Int64s) -> RunTimeHistory:
    """The history of jobs that ended; arrays (jobs,), in any order. `user` and `name` count from 0."""
    share = np.minimum(run_s / np.maximum(limit_s, 1), 1.0)
    names, by_name = np.unique(user * MOST_NAMES + name, return_inverse=True)
    limits, by_limit = np.unique(limit_s, return_inverse=True)
    users = int(user.max()) + 1 if len(user) else 0
    groups = (by_name, user, by_limit, np.zeros(len(user), np.int64))
    counts = (len(names), users, len(limits), 1)
    orders = [np.lexsort((share, end_s, group)) for group in groups]
    firsts = [k * len(user) + np.searchsorted(groups[k][orders[k]], np.arange(counts[k])) for k in range(LEVELS)]
    row = np.concatenate(orders)
    return RunTimeHistory(
        np.append(np.concatenate(firsts), LEVELS * len(user)).astype(np.int64),
        np.cumsum((0, *counts[:-1])).astype(np.int64),
        end_s[row].astype(np.int64),
        share[row],
        names.astype(np.int64),
        limits.astype(np.int64),
    )


def group_of(past: RunTimeHistory, level: int, user: int, name: int, limit_s: int) -> int:
    """Which group of a level a job belongs to, as it stands in `first`; NOBODY where no ended job is in it."""
    if level == 0:
        wanted = user * MOST_NAMES + name
        at = int(np.searchsorted(past.names, wanted))
        return at if at < len(past.names) and past.names[at] == wanted else NOBODY
    if level == 1:
        at = int(past.level[1]) + user
        return at if at < past.level[2] else NOBODY
    if level == 2:
        at = int(np.searchsorted(past.limits, limit_s))
        return int(past.level[2]) + at if at < len(past.limits) and past.limits[at] == limit_s else NOBODY
    return int(past.level[3])


def like_runs(
    past: RunTimeHistory,
    user: int,
    name: int,
    limit_s: int,
    elapsed_s: int,
    known_s: int,
    share: Float64s,
    weight: Float64s,
) -> int:
    """Write shares of the limit that the job may run, rising, and how likely each is; returns how many.

    share, weight: (ROOM,), overwritten. By what had ended before `known_s` (epoch s) alone. The weights add up to 1
    where there is any; 0 is returned where nobody ran for longer.
    """
    used = elapsed_s / limit_s
    count, left = 0, 1.0
    for level in range(LEVELS):
        group = group_of(past, level, user, name, limit_s)
        if group != NOBODY:
            first, after = past.first[group], past.first[group + 1]
            after = first + int(np.searchsorted(past.end_s[first:after], known_s))
            begin = count
            for i in range(max(first, after - LAST), after):
                if past.share[i] > used:
                    share[count] = past.share[i]
                    count += 1
            longer = count - begin
            if longer > 0:
                mass = left if level == LEVELS - 1 else left * longer / (longer + PRIOR[level])
                left -= mass
                for i in range(begin, count):
                    weight[i] = mass / longer
    if count == 0:
        return 0
    order = np.argsort(share[:count])
    share[:count] = share[:count][order]
    weight[:count] = weight[:count][order] / np.sum(weight[:count])
    return count


def draw_run_s(
    share: Float64s, weight: Float64s, count: int, limit_s: int, elapsed_s: int, quantile: Float64s, out: Int64s
) -> None:
    """Write run times, s, at `quantile` (K,) of what `like_runs` found into `out` (K,).

    At least LEAST_LEFT_S longer than the job has run.
    """
    for k in range(len(quantile)):
        if count == 0:
            run_s = elapsed_s + quantile[k] * max(limit_s - elapsed_s, 0)
        else:
            i, below = 0, weight[0]
            while i < count - 1 and below <= quantile[k]:
                i += 1
                below += weight[i]
            run_s = share[i] * limit_s
        out[k] = max(int(run_s), elapsed_s + LEAST_LEFT_S)

"""The distribution of a job's run time, given its user, name, limit and elapsed time, from jobs that have ended.

We look for similar jobs on four levels: the same user and name, the same user, the same limit, any job. Each level
considers the LAST jobs that ended before the instant, and keeps those that ran for a larger share of their limits than
this job has so far. A level with m such jobs gets m / (m + PRIOR) of the weight that the previous levels left, divided
equally; the last level gets the rest. So a user's habit with a script counts as soon as it is observed, and an unknown
job runs like the others.

Run times are shares of limits rather than seconds, because users change limits and habits together. Where no similar
job ran for longer, the run time is uniform between the elapsed time and the limit.

Jobs that still run do not count as censored observations (Kaplan and Meier, JASA 53, 1958); we tried this and it was no
better (docs/results.md). The functions are plain Python over numpy arrays, which numba can compile.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from traces.arrays import Float64s, Int64s

LAST = 48  # jobs considered on each level
PRIOR = (3.0, 12.0, 12.0)  # similar jobs with which a level gets half of the weight that the previous levels left
LEVELS = 4
ROOM = LEVELS * LAST  # length of the arrays that `like_runs` writes
LEAST_LEFT_S = 60  # Slurm ends a job past its limit within KillWait
NOBODY = -1  # the group of a job without similar jobs
MOST_NAMES = 1 << 31


class RunTimeHistory(NamedTuple):
    """Ended jobs by level and group: the jobs of group g are rows first[g] .. first[g + 1] - 1, by end.

    The groups of level 0 come first, then those of level 1, and so on; `level` holds the first group of each level.
    """

    first: Int64s  # (groups of all levels + 1,)
    level: Int64s  # (LEVELS,)
    end_s: Int64s  # (LEVELS * jobs,) epoch s
    share: Float64s  # (LEVELS * jobs,) run time over limit, at most 1
    names: Int64s  # (groups of level 0,) user * MOST_NAMES + name, rising
    limits: Int64s  # (groups of level 2,) rising


def history(end_s: Int64s, run_s: Int64s, limit_s: Int64s, user: Int64s, name: Int64s) -> RunTimeHistory:
    """Build the history of ended jobs from arrays (jobs,), in any order. `user` and `name` count from 0."""
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
    """Find the group of a level to which a job belongs, as an index into `first`; NOBODY if no ended job is in it."""
    if level == 0:
        code = user * MOST_NAMES + name
        place = int(np.searchsorted(past.names, code))
        return place if place < len(past.names) and past.names[place] == code else NOBODY
    if level == 1:
        group = int(past.level[1]) + user
        return group if group < past.level[2] else NOBODY
    if level == 2:
        place = int(np.searchsorted(past.limits, limit_s))
        is_known = place < len(past.limits) and past.limits[place] == limit_s
        return int(past.level[2]) + place if is_known else NOBODY
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
    """Write the possible run times, as rising shares of the limit, with their probabilities; return how many.

    share, weight: (ROOM,), overwritten. Only jobs that ended before `known_s` (epoch s) count. The weights add up to 1.
    Returns 0 where no similar job ran for longer.
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
    """Write the run times, s, at `quantile` (K,) of the distribution from `like_runs` into `out` (K,).

    A run time is at least LEAST_LEFT_S longer than the elapsed time.
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

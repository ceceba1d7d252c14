"""The fair-tree algorithm (fair_tree.html): decaying usage and the rank of each user. Compiled."""

from __future__ import annotations

import numpy as np

from simulator.compiled import kernel, kernel_part
from simulator.slurm.compiled.state import LAST_USAGE, NOW, RUN_JOB, RUN_START, RUNNING_ROWS, SlurmRun, SlurmState

_ROW, _LIST, _NEXT_ROW, _NEXT_LIST = 0, 1, 2, 3  # columns of SlurmScratch.order


@kernel
def account_usage(run: SlurmRun, state: SlurmState) -> None:
    """Decay the usage of each association and add the usage since the last calculation."""
    scalars, fresh, parent = state.scalars, state.fresh, run.tables.parent
    now = scalars[NOW]
    for slot in range(scalars[RUNNING_ROWS]):
        job = state.running[slot, RUN_JOB]
        since = max(state.running[slot, RUN_START], scalars[LAST_USAGE])
        fresh[run.jobs.association[job]] += run.jobs.charge[job] * (now - since)
    for a in range(len(fresh) - 1, 0, -1):
        fresh[parent[a]] += fresh[a]
    for a in range(len(fresh)):
        state.usage[a] = state.usage[a] * run.knobs.decay + fresh[a]
        fresh[a] = 0
    scalars[LAST_USAGE] = now


@kernel_part
def _level_factors(run: SlurmRun, state: SlurmState) -> None:
    """Write each association's LF to `SlurmScratch.keys`: its part of its siblings' shares over that of their usage."""
    tables, keys = run.tables, run.scratch.keys
    keys[0] = np.inf
    for a in range(len(tables.parent)):
        shares = 0
        usage = 0.0
        for i in range(tables.below_first[a], tables.below_first[a + 1]):
            shares += tables.shares[tables.below[i]]
            usage += state.usage[tables.below[i]]
        for i in range(tables.below_first[a], tables.below_first[a + 1]):
            child = tables.below[i]
            if state.usage[child] == 0.0:
                keys[child] = np.inf
            elif tables.shares[child] == 0:
                keys[child] = 0.0
            else:
                keys[child] = (tables.shares[child] / shares) / (state.usage[child] / usage)


@kernel_part
def _precedes(run: SlurmRun, row: int, other: int) -> bool:
    """Whether association `row` is visited before its sibling `other`: by falling LF, users first, then by row."""
    keys, leaf = run.scratch.keys, run.tables.leaf
    if keys[row] != keys[other]:
        return bool(keys[row] > keys[other])
    if leaf[row] != leaf[other]:
        return bool(leaf[row])
    return row < other


@kernel
def rank_users(run: SlurmRun, state: SlurmState) -> None:
    """Rank the users by a walk from the root: siblings by falling LF, accounts of equal LF merged."""
    tables, order, keys = run.tables, run.scratch.order, run.scratch.keys
    _level_factors(run, state)
    order[0, _ROW], order[0, _LIST] = 0, 0
    rows, lists = 1, 1
    accounts = True
    while accounts:
        accounts = False
        used = 0
        i = 0
        while i < rows:
            row, in_list = order[i, _ROW], order[i, _LIST]
            if tables.leaf[row]:
                order[used, _NEXT_ROW], order[used, _NEXT_LIST] = row, in_list
                used += 1
                i += 1
                continue
            first = used
            while (
                i < rows
                and not tables.leaf[order[i, _ROW]]
                and order[i, _LIST] == in_list
                and (keys[order[i, _ROW]] == keys[row])
            ):
                for c in range(tables.below_first[order[i, _ROW]], tables.below_first[order[i, _ROW] + 1]):
                    child = tables.below[c]
                    accounts = accounts or not tables.leaf[child]
                    k = used
                    while k > first and _precedes(run, child, order[k - 1, _NEXT_ROW]):
                        order[k, _NEXT_ROW] = order[k - 1, _NEXT_ROW]
                        k -= 1
                    order[k, _NEXT_ROW] = child
                    order[used, _NEXT_LIST] = lists
                    used += 1
                i += 1
            lists += 1
        for k in range(used):
            order[k, _ROW], order[k, _LIST] = order[k, _NEXT_ROW], order[k, _NEXT_LIST]
        rows = used
    rank = rows
    for i in range(rows):
        row = order[i, _ROW]
        if i == 0 or order[i, _LIST] != order[i - 1, _LIST] or keys[row] != keys[order[i - 1, _ROW]]:
            rank = rows - i
        state.factor[row] = rank / rows

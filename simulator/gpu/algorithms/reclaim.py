"""Choose the loaned servers to return so that few jobs are preempted: Lyra's greedy choice by preemption cost.

Li et al., "Lyra: Elastic scheduling for deep learning clusters" (EuroSys 2023; "Aryl", arXiv 2202.07896). A job on k
servers adds 1/k to the cost of each of them. Counting servers instead of GPUs is our reading. Finding the cheapest set
is a knapsack problem with dependent items, and NP-hard; the paper picks greedily and recomputes the costs after each
pick.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def choose_servers(servers_of: Mapping[int, Collection[int]], loaned: Collection[int], wanted: int) -> list[int]:
    """Return `wanted` of the `loaned` servers in the order of their picks; all of them if there are no more.

    `servers_of` maps every job that would be preempted to its servers, loaned or not. It omits a job whose workers on
    loaned servers can be removed without preempting it. Ties by the lowest number.
    """
    alive = {job: set(servers) for job, servers in servers_of.items() if set(servers) & set(loaned)}
    left, picked = set(loaned), []
    for _ in range(min(wanted, len(left))):
        cost = dict.fromkeys(left, 0.0)
        for servers in alive.values():
            for server in servers & left:
                cost[server] += 1.0 / len(servers)
        server = min(left, key=lambda number: (cost[number], number))
        picked.append(server)
        left.remove(server)
        alive = {job: servers for job, servers in alive.items() if server not in servers}
    return picked

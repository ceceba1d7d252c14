"""Number of nodes with room for one shape of job, compiled: one pass over allocations and releases.

Arrays in, arrays out. `features.causes.pools` prepares the arrays; the tests compare with a loop in plain Python.
"""

from __future__ import annotations

from simulator.compiled import kernel, kernel_inline
from traces.arrays import Int32s, Int64s


@kernel
def nodes_with_room(node: Int32s, taken: Int32s, free: Int64s, need: Int64s, count: Int64s) -> None:
    """Count the nodes on which all of `need` is free, after each of k changes.

    node (k,), taken (k, 3): changes in order of time, the GPUs, CPUs and MiB taken on that node (negative if released).
    free (nodes, 3): free amounts before the first change; overwritten. need (3,): amounts needed on one node.
    count (k + 1,): output, the number of such nodes before the first change and after each change.
    """
    fitting = 0
    for place in range(len(free)):
        fitting += _has_room(free, place, need)
    count[0] = fitting
    for i in range(len(node)):
        place = node[i]
        fitting -= _has_room(free, place, need)
        for resource in range(3):
            free[place, resource] -= taken[i, resource]
        fitting += _has_room(free, place, need)
        count[i + 1] = fitting


@kernel_inline
def _has_room(free: Int64s, place: int, need: Int64s) -> int:
    return int(free[place, 0] >= need[0] and free[place, 1] >= need[1] and free[place, 2] >= need[2])

"""What a replay under a GPU scheduler did with each job, on either clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from traces.arrays import Float64s, Int64s


class GpuResult(NamedTuple):
    """The outcome of each job in the given order, (n,) each; times in seconds of the trace, -1 if it never happened."""

    start_s: Float64s
    end_s: Float64s
    ran_s: Float64s  # time with GPUs
    gpu_s: Float64s  # GPU seconds held
    gpu_s_by_type: Mapping[str, Float64s]  # GPU type -> the same on it
    lost_gpu_s: Float64s  # GPU seconds held without progress, after a restart
    restarts: Int64s  # restarts after a stop, a move or a resize
    preemptions: Int64s  # stops before the end
    decisions: int
    stranded_gpu_s: float  # GPU seconds that were free while a present job had no GPUs
    loaned_gpu_s: float = 0.0  # GPU seconds of nodes that a policy borrowed in addition to the machine, used or not

"""The jobs of a trace as arrays: what every scheduler here replays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]


@dataclass(frozen=True)
class Workload:
    """Jobs in order of (submit_s, job_id), struct of arrays, each of shape (jobs,) and dtype int64.

    `size` is in units of the cluster's capacity: whole nodes, or processors of a flat pool.
    `limit_s` is the user's wall-clock limit; a job without one carries its partition's, never 0.
    """

    job_id: Int64s
    submit_s: Int64s  # epoch seconds (or the trace's own, SWF)
    size: Int64s  # nodes or processors, >= 1
    run_s: Int64s  # recorded run time, s
    limit_s: Int64s  # requested wall-clock limit, s
    start_s: Int64s  # recorded start, s; -1 where the log holds none (never read by a scheduler)

    def __len__(self) -> int:
        return len(self.job_id)

    def take(self, index: NDArray[np.int64] | NDArray[np.bool_]) -> Workload:
        """The jobs at `index` (positions or mask), in their order."""
        return Workload(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

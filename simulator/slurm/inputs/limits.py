"""Limits and other amounts of the files as columns of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from simulator.slurm import world as w
from traces.arrays import Int64s


def int_column(values: Iterable[int | None], unset: int = w.NO_LIMIT) -> Int64s:
    """Return the values as int64, shape (values,), with `unset` for None."""
    return np.array([unset if value is None else value for value in values], np.int64)


class TresLimits:
    """Converts TRES by name to vectors of CPU, MEMORY, NODE, GPU."""

    def __init__(self, gpu_types: list[str], enforced: bool, remarks: list[str]) -> None:
        self.gpu_types, self.enforced, self.remarks = gpu_types, enforced, remarks

    def vector(self, tres: Mapping[str, float], what: str, unset: float) -> list[float]:
        """Return amounts of TRES, `unset` where none is named; a TRES that is not modelled is a remark on `what`."""
        names = {"cpu": w.CPU, "mem": w.MEMORY, "node": w.NODE, "gres/gpu": w.GPU}
        amounts = [unset] * w.TRES
        for name, value in tres.items():
            kind = name.removeprefix("gres/gpu:")
            if name in names:
                amounts[names[name]] = value
            elif kind != name and "gres/gpu" not in tres and self.gpu_types == [kind]:
                amounts[w.GPU] = value  # the cluster's only type of GPU
            elif not (kind != name and "gres/gpu" in tres and self.gpu_types == [kind]):
                self.remarks.append(f"{what}: TRES {name!r} is not modelled")
        return amounts

    def count(self, value: int | None) -> int:
        """Return a limit on a number of jobs, if limits are enforced."""
        return w.NO_LIMIT if value is None or not self.enforced else value

    def tres(self, tres: Mapping[str, int], what: str) -> list[int]:
        """Return limits on TRES, if limits are enforced."""
        return [int(value) for value in self.vector(tres if self.enforced else {}, what, w.NO_LIMIT)]


def tres_matrix(rows: Iterable[list[int]]) -> Int64s:
    """Return vectors of TRES as an array of shape (rows, TRES)."""
    return np.array(list(rows), np.int64).reshape(-1, w.TRES)

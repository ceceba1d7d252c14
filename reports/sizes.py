"""Sizes of jobs as the tables name them, in order."""

from __future__ import annotations

import polars as pl

SIZE_ORDER = ("0", "1", "2-4", "5-8", ">8")  # GPUs


def by_size(column: str) -> pl.Expr:
    """Sort key that puts size buckets in order of size, unknown ones last."""
    return pl.col(column).replace_strict(SIZE_ORDER, range(len(SIZE_ORDER)), default=99, return_dtype=pl.Int64)


def gpus(size: str) -> str:
    """A bucket in words."""
    return "1 GPU" if size == "1" else f"{size} GPUs"

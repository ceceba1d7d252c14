"""Size buckets of jobs in the binding resource of the cluster."""

from __future__ import annotations

from itertools import pairwise

import polars as pl

from features.resources.capacity import Resource
from features.resources.usage import asked_gpus, asked_nodes
from traces.clusters import ClusterSettings

# Largest amount of each size except the last. GPUs as in Jeon et al., ATC'19, with 0 for none; memory in GiB.
STEPS: dict[Resource, tuple[int, int, int, int]] = {
    "GPU": (0, 1, 4, 8),
    "core": (1, 8, 32, 128),
    "memory": (1, 16, 64, 256),
    "node": (1, 4, 16, 128),
}


def size_names(resource: Resource) -> tuple[str, ...]:
    """List the sizes of jobs in that resource, the smallest first: 0, 1, 2-4, 5-8 and >8 for GPUs."""
    steps = STEPS[resource]
    names = [str(steps[0])]
    for below, most in pairwise(steps):
        names.append(str(most) if most == below + 1 else f"{below + 1}-{most}")
    return (*names, f">{steps[-1]}")


def size_bucket(amount: pl.Expr, resource: Resource = "GPU") -> pl.Expr:
    """Size of a job that requests `amount` (GPUs, cores, nodes or MiB); null for an unknown amount."""
    if resource == "memory":
        amount = (amount / 1024).ceil()
    *names, largest = size_names(resource)
    bucket = pl.lit(largest)
    for name, most in reversed(list(zip(names, STEPS[resource], strict=True))):
        bucket = pl.when(amount <= most).then(pl.lit(name)).otherwise(bucket)
    return pl.when(amount.is_not_null()).then(bucket)


def asked_amount(resource: Resource, settings: ClusterSettings) -> pl.Expr:
    """Amount of that resource that a row of jobs requests, else holds: GPUs, cores, nodes or MiB."""
    if resource == "GPU":
        return asked_gpus(settings)
    if resource == "node":
        return asked_nodes()
    kind = "cpus" if resource == "core" else "mem_mib"
    return pl.coalesce(pl.col(f"requested_{kind}").replace(0, None), pl.col(f"allocated_{kind}").replace(0, None))


def size_in_words(size: str, unit: str) -> str:
    """Format a size with its unit (GPU, core, GiB or node): 1 GPU, 2 to 8 cores, more than 128 nodes."""
    words = size.replace("-", " to ").replace(">", "more than ")
    return f"{words} {unit}" if size == "1" or unit == "GiB" else f"{words} {unit}s"


def by_size(column: str) -> pl.Expr:
    """Sort key for the sizes of one resource; unknown sizes come last."""
    most = pl.col(column).cast(pl.String).str.extract(r"(\d+)$").cast(pl.Float64)
    is_largest = pl.col(column).cast(pl.String).str.starts_with(">")
    return (most + is_largest.cast(pl.Float64) / 2).fill_null(float("inf"))

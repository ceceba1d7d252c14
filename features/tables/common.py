# ruff: noqa: E501  (one table of data: a column a line)
"""Columns that several tables of the analytics share."""

from __future__ import annotations

from traces.schema import INT, TEXT, Column

ATTEMPT = Column("attempt", INT, "", "as in attempts: 0-based, in time order", nullable=False)
GPU_BUCKET = Column("size_bucket", TEXT, "", "GPUs as 0, 1, 2-4, 5-8 or >8; null where the log does not say them")
SIZE_BUCKET = Column(
    "size_bucket",
    TEXT,
    "",
    "size by the resource that the cluster is about: 0, 1, 2-4, 5-8 or >8 GPUs; 1, 2-8, 9-32, 33-128 or >128 cores; 1, 2-16, 17-64, 65-256 or >256 GiB; 1, 2-4, 5-16, 17-128 or >128 nodes; null where the log does not say it",
)
CAPACITY_SOURCE = Column(
    "capacity_source",
    TEXT,
    "",
    "'settings', 'machine list', 'nodes in use' (jobs ran on them) or 'peak in use'; the larger number counts where the log contradicts it",
    nullable=False,
)

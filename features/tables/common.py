# ruff: noqa: E501  (one table of data: a column a line)
"""Columns that several tables of the analytics share."""

from __future__ import annotations

from traces.schema import INT, TEXT, Column

ATTEMPT = Column("attempt", INT, "", "number of the attempt, as in `attempts`: from 0, in time order", nullable=False)
GPU_BUCKET = Column(
    "size_bucket", TEXT, "", "size of the job in GPUs: 0, 1, 2-4, 5-8 or >8; null where the log has no GPU count"
)
SIZE_BUCKET = Column(
    "size_bucket",
    TEXT,
    "",
    "size of the job in the cluster's binding resource: 0, 1, 2-4, 5-8 or >8 GPUs; 1, 2-8, 9-32, 33-128 or >128 cores; 1, 2-16, 17-64, 65-256 or >256 GiB; 1, 2-4, 5-16, 17-128 or >128 nodes; null where the log does not record it",
)
CAPACITY_SOURCE = Column(
    "capacity_source",
    TEXT,
    "",
    "source of the capacity: 'settings', 'machine list', 'nodes in use' (nodes on which jobs ran) or 'peak in use' (most in use at once); where the log shows more in use, the larger number counts",
    nullable=False,
)

"""Nodes that the jobs of a partition may use: those listed for it and those on which its jobs ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from features.resources.on_nodes import OnNodes
from features.trace import Trace

SEEN = 0.9  # Good-Turing coverage from which we assume that all nodes of a partition are known


def places_of_partitions(
    trace: Trace, on_nodes: OnNodes, sizes: pl.DataFrame, partitions: list[str | None]
) -> dict[str | None, frozenset[int]]:
    """Map each partition to its nodes, as places in `sizes`: those listed for it and those on which its jobs ran.

    A partition without known nodes may use all nodes; so may the only partition of a log.
    """
    everywhere = frozenset(sizes["place"].to_list())
    placed = counts_by_partition(on_nodes).with_columns(pl.col("node").cast(pl.String))
    placed = placed.join(sizes.select("place", "node").drop_nulls("node"), on="node").drop("node")
    seen = nodes_of_partitions(placed.rename({"place": "node"}))
    listed: dict[str | None, frozenset[int]] = {}
    if trace.nodes["partitions"].count():
        partitions_of_node = trace.nodes.select(
            pl.col("node").cast(pl.String), pl.col("partitions").cast(pl.String).str.split(",").alias("name")
        )
        for (name,), rows in sizes.join(partitions_of_node, on="node").explode("name").group_by("name"):
            listed[str(name)] = frozenset(rows["place"].to_list())
    if len(partitions) == 1 and not listed:
        return {partitions[0]: everywhere}
    both = {name: listed.get(name, frozenset()) | seen.get(name, frozenset()) for name in {*partitions, *seen}}
    return {name: places or everywhere for name, places in both.items()}


def counts_by_partition(on_nodes: OnNodes) -> pl.DataFrame:
    """Count the placements of each partition on each node: partition, node, len."""
    parts = on_nodes.parts("partition", "node")
    return pl.concat([rows.group_by("partition", "node", maintain_order=True).len() for rows in parts])


def nodes_of_partitions(counts: pl.DataFrame) -> dict[str | None, frozenset[Any]]:
    """Map each partition to the nodes on which its jobs ran. `counts`: see `counts_by_partition`.

    A partition with few jobs did not use all of its nodes in the log. If more than one in ten of its placements is the
    only one on its node (Good-Turing estimate of unseen nodes), it also gets the nodes of every partition that shares a
    node with it.
    """
    seen: dict[str | None, frozenset[Any]] = {}
    sure: set[str | None] = set()
    for (name,), rows in counts.group_by("partition", maintain_order=True):
        partition = None if name is None else str(name)
        seen[partition] = frozenset(rows["node"].to_list())
        if 1 - int((rows["len"] == 1).sum()) / int(rows["len"].sum()) >= SEEN:
            sure.add(partition)
    neighbours: Mapping[str | None, list[frozenset[Any]]] = {
        name: [other for other in seen.values() if other & nodes] for name, nodes in seen.items()
    }
    return {name: nodes if name in sure else frozenset().union(*neighbours[name]) for name, nodes in seen.items()}

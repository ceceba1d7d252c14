"""The node lists of one configuration, expanded to names, with a bound on all of them together.

A short list can name 100,000 nodes, so a file of a few kilobytes could otherwise take any amount of memory.
"""

from __future__ import annotations

from traces.errors import InputError
from traces.slurm.text import expand_nodes

MOST_NAMES = 2_000_000  # in all lists of a configuration together: 100 partitions of 20,000 nodes


class NodeLists:
    """Expands the node lists of one configuration, at most MOST_NAMES names in all."""

    def __init__(self) -> None:
        self._left = MOST_NAMES

    def expanded(self, text: str, where: str) -> list[str]:
        """Expand a node list to its names. Raises InputError (file:line) for other text, and beyond MOST_NAMES."""
        try:
            names = expand_nodes(text)
        except ValueError as error:
            raise InputError(f"{where}: {error}") from error
        return self.counted(names, where)

    def counted(self, names: list[str], where: str) -> list[str]:
        """Count names that stand for a node list, such as ALL, and return them. Raises InputError as `expanded`."""
        self._left -= len(names)
        if self._left < 0:
            raise InputError(f"{where}: up to this line all node lists together name over {MOST_NAMES} nodes")
        return names

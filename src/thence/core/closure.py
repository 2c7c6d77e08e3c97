"""The closure of a graph: every pair of ancestor and descendant with the least number of steps between them.

It answers "all children of X" and "all parents of Y" without recursion, as a closure table does in SQL. Each node is
its own ancestor at depth 0. `with_edges` takes edges in any order, late parents included, and gives the same closure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from thence.core.errors import Rejected

Node = TypeVar("Node", bound=Hashable)


class Closure(msgspec.Struct, Generic[Node], frozen=True):
    """Depths by descendant (`above[child][parent]`) and by ancestor (`below[parent][child]`)."""

    above: dict[Node, dict[Node, int]] = {}
    below: dict[Node, dict[Node, int]] = {}

    def pairs(self) -> set[tuple[Node, Node, int]]:
        """The rows of the closure table: ancestor, descendant, depth."""
        return {(a, d, depth) for a, row in self.below.items() for d, depth in row.items()}

    def with_edges(self, edges: Iterable[tuple[Node, Node]]) -> Closure[Node]:
        """The closure after more edges. An edge that would close a cycle is refused and nothing changes."""
        above = {node: dict(row) for node, row in self.above.items()}
        below = {node: dict(row) for node, row in self.below.items()}
        for parent, child in edges:
            for node in (parent, child):
                above.setdefault(node, {node: 0})
                below.setdefault(node, {node: 0})
            if child in above[parent]:
                raise Rejected(
                    "lineage.cycle",
                    f"the edge {parent!s} -> {child!s} would make {parent!s} its own ancestor",
                    advice="Correct the producer: what came later cannot be a parent of what came before.",
                )
            _join(above, below, parent, child)
        return Closure(above, below)


def _join(
    above: dict[Node, dict[Node, int]], below: dict[Node, dict[Node, int]], parent: Node, child: Node
) -> None:
    for ancestor, up in above[parent].items():
        for descendant, down in below[child].items():
            depth = up + 1 + down
            if depth < above[descendant].get(ancestor, depth + 1):
                above[descendant][ancestor] = depth
                below[ancestor][descendant] = depth

"""A directed graph of named nodes: what lineage is drawn and answered from.

Nodes keep the order in which they were given, so that everything made from a graph is the same each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

Node = TypeVar("Node", bound=Hashable)


class Graph(msgspec.Struct, Generic[Node], frozen=True):
    """Nodes and the edges from parents to children. Made with `graph`."""

    nodes: tuple[Node, ...]
    edges: tuple[tuple[Node, Node], ...]

    def children(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node, the nodes that came from it."""
        return _adjacency(self.nodes, self.edges)

    def parents(self) -> Mapping[Node, tuple[Node, ...]]:
        """For each node, the nodes that it came from."""
        return _adjacency(self.nodes, ((child, parent) for parent, child in self.edges))

    def around(self, start: Node, *, up: int | None = None, down: int | None = None) -> Graph[Node]:
        """The part within `up` steps above and `down` steps below a node; None means all the way."""
        kept = {*distances(self.parents(), start, up), *distances(self.children(), start, down)}
        return Graph(
            tuple(node for node in self.nodes if node in kept),
            tuple((a, b) for a, b in self.edges if a in kept and b in kept),
        )

    def cycle(self) -> tuple[Node, ...]:
        """Some nodes that lead back to themselves, in order; empty when there are none."""
        waiting = {node: len(above) for node, above in self.parents().items()}
        children = self.children()
        free = deque(node for node, count in waiting.items() if count == 0)
        while free:
            node = free.popleft()
            del waiting[node]
            for child in children[node]:
                waiting[child] -= 1
                if waiting[child] == 0:
                    free.append(child)
        return _walk_back(self.parents(), waiting) if waiting else ()


def graph(edges: Iterable[tuple[Node, Node]], nodes: Iterable[Node] = ()) -> Graph[Node]:
    """Build a graph; nodes that appear only in edges need not be named, and repetitions count once."""
    unique = tuple(dict.fromkeys(edges))
    ends = (end for edge in unique for end in edge)
    return Graph(tuple(dict.fromkeys((*nodes, *ends))), unique)


def distances(
    neighbours: Mapping[Node, tuple[Node, ...]], start: Node, limit: int | None = None
) -> dict[Node, int]:
    """The least number of steps from a node to every node within the limit, itself included."""
    found = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if limit is not None and found[node] >= limit:
            continue
        for other in neighbours.get(node, ()):
            if other not in found:
                found[other] = found[node] + 1
                queue.append(other)
    return found


def _adjacency(nodes: Iterable[Node], pairs: Iterable[tuple[Node, Node]]) -> dict[Node, tuple[Node, ...]]:
    found: dict[Node, list[Node]] = {node: [] for node in nodes}
    for near, far in pairs:
        found[near].append(far)
    return {node: tuple(others) for node, others in found.items()}


def _walk_back(parents: Mapping[Node, tuple[Node, ...]], tangled: Mapping[Node, int]) -> tuple[Node, ...]:
    # Every tangled node has a tangled parent, so walking up must meet its own path.
    path = [next(iter(tangled))]
    while True:
        above = next(parent for parent in parents[path[-1]] if parent in tangled)
        if above in path:
            return tuple(reversed(path[path.index(above) :]))
        path.append(above)

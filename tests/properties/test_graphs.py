"""Graphs and closures agree with a graph library that others wrote, on any graph."""

from __future__ import annotations

import itertools
from contextlib import suppress

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thence.core.closure import Closure
from thence.core.errors import Rejected
from thence.core.graph import Graph, distances, graph

NODES = st.integers(0, 9)
EDGES = st.lists(st.tuples(NODES, NODES), max_size=30)
STEPS = st.none() | st.integers(0, 4)


def peer(one: Graph[int]) -> nx.DiGraph:
    other = nx.DiGraph()
    other.add_nodes_from(one.nodes)
    other.add_edges_from(one.edges)
    return other


@st.composite
def acyclic_edges(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Edges of an acyclic graph in any order, some of them repeated; any node may be the root."""
    names = draw(st.permutations(range(10)))
    pairs = draw(st.lists(st.tuples(NODES, NODES).filter(lambda pair: pair[0] < pair[1]), max_size=30))
    repeated = pairs + draw(st.lists(st.sampled_from(pairs), max_size=5)) if pairs else pairs
    return draw(st.permutations([(names[a], names[b]) for a, b in repeated]))


# Graphs


@given(EDGES, st.lists(NODES, max_size=3))
def test_a_graph_has_its_nodes_and_edges_once(edges: list[tuple[int, int]], alone: list[int]) -> None:
    built = graph(edges, alone)
    assert list(built.edges) == list(dict.fromkeys(edges))
    assert len(built.nodes) == len(set(built.nodes))
    assert set(built.nodes) == {*alone, *itertools.chain(*edges)}
    assert graph(built.edges, built.nodes) == built


@given(EDGES)
def test_children_and_parents_mirror_each_other(edges: list[tuple[int, int]]) -> None:
    built = graph(edges)
    other = peer(built)
    for node in built.nodes:
        assert set(built.children()[node]) == set(other.successors(node))
        assert set(built.parents()[node]) == set(other.predecessors(node))


@given(EDGES, NODES, STEPS, STEPS)
def test_around_is_what_is_near(
    edges: list[tuple[int, int]], start: int, up: int | None, down: int | None
) -> None:
    built = graph(edges, [start])
    other = peer(built)
    below = nx.single_source_shortest_path_length(other, start, cutoff=down)
    above = nx.single_source_shortest_path_length(other.reverse(), start, cutoff=up)
    near = built.around(start, up=up, down=down)
    assert set(near.nodes) == {*below, *above}
    assert set(near.edges) == set(other.subgraph([*below, *above]).edges)
    assert list(near.nodes) == [node for node in built.nodes if node in set(near.nodes)], "the order is kept"


@given(EDGES, NODES, STEPS)
def test_distances_are_the_shortest(edges: list[tuple[int, int]], start: int, limit: int | None) -> None:
    built = graph(edges, [start])
    expected = dict(nx.single_source_shortest_path_length(peer(built), start, cutoff=limit))
    assert distances(built.children(), start, limit) == expected


@given(EDGES)
def test_a_cycle_is_found_when_there_is_one(edges: list[tuple[int, int]]) -> None:
    built = graph(edges)
    cycle = built.cycle()
    assert bool(cycle) is not nx.is_directed_acyclic_graph(peer(built))
    steps = set(zip(cycle, [*cycle[1:], *cycle[:1]], strict=True))
    assert steps <= set(built.edges), f"{cycle} is no cycle"
    assert len(set(cycle)) == len(cycle)


def test_cycles_as_people_see_them() -> None:
    assert graph([("a", "a")]).cycle() == ("a",)
    assert graph([("x", "a"), ("a", "b"), ("b", "a"), ("b", "y")]).cycle() in (("a", "b"), ("b", "a"))
    assert graph([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]).cycle() == ()
    assert graph([]).cycle() == ()


def test_a_long_chain_needs_no_recursion() -> None:
    chain = graph(itertools.pairwise(range(20_000)))
    assert len(chain.around(10_000).nodes) == 20_000
    assert chain.cycle() == ()


# Closures


def closure_of(edges: list[tuple[int, int]]) -> set[tuple[int, int, int]]:
    """The closure by searching from each node."""
    built = graph(edges)
    lengths = dict(nx.all_pairs_shortest_path_length(peer(built)))
    return {(a, d, depth) for a, row in lengths.items() for d, depth in row.items()}


@given(acyclic_edges())
def test_a_closure_is_what_a_search_finds(edges: list[tuple[int, int]]) -> None:
    assert Closure[int]().with_edges(edges).pairs() == closure_of(edges)


@given(acyclic_edges(), st.data())
def test_a_closure_does_not_depend_on_the_order_of_edges(
    edges: list[tuple[int, int]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(edges))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(edges)), max_size=3)))
    closure = Closure[int]()
    for begin, end in itertools.pairwise([0, *cuts, len(edges)]):
        closure = closure.with_edges(shuffled[begin:end])
    assert closure.pairs() == closure_of(edges)


@given(acyclic_edges())
def test_both_sides_of_a_closure_say_the_same(edges: list[tuple[int, int]]) -> None:
    closure = Closure[int]().with_edges(edges)
    upwards = {(a, d, depth) for d, row in closure.above.items() for a, depth in row.items()}
    assert upwards == closure.pairs()


@given(EDGES)
def test_a_cycle_is_refused_and_nothing_changes(edges: list[tuple[int, int]]) -> None:
    closure = Closure[int]()
    taken: list[tuple[int, int]] = []
    for edge in edges:
        before = closure.pairs()
        if nx.is_directed_acyclic_graph(peer(graph([*taken, edge]))):
            closure = closure.with_edges([edge])
            taken.append(edge)
            continue
        with pytest.raises(Rejected) as caught:
            closure.with_edges([(100, 101), edge])
        assert caught.value.code == "lineage.cycle"
        assert closure.pairs() == before
    assert closure.pairs() == closure_of(taken)


@given(acyclic_edges(), acyclic_edges())
def test_a_closure_is_a_value(edges: list[tuple[int, int]], more: list[tuple[int, int]]) -> None:
    """Adding edges gives a new closure, and the old one stays as it was."""
    before = Closure[int]().with_edges(edges)
    pairs = before.pairs()
    with suppress(Rejected):
        before.with_edges(more)
    assert before.pairs() == pairs


def test_the_two_hierarchies_of_the_closure_table() -> None:
    """aaa > bbb > ccc and aaa > eee: the rows of the table, and its two questions."""
    for edges in itertools.permutations([("aaa", "bbb"), ("bbb", "ccc"), ("aaa", "eee")]):
        closure = Closure[str]().with_edges(edges)
        assert closure.pairs() == {
            ("aaa", "aaa", 0),
            ("bbb", "bbb", 0),
            ("ccc", "ccc", 0),
            ("eee", "eee", 0),
            ("aaa", "bbb", 1),
            ("bbb", "ccc", 1),
            ("aaa", "ccc", 2),
            ("aaa", "eee", 1),
        }
        assert closure.below["aaa"] == {"aaa": 0, "bbb": 1, "eee": 1, "ccc": 2}
        assert closure.above["eee"] == {"aaa": 1, "eee": 0}


def test_the_shorter_of_two_ways_counts() -> None:
    closure = Closure[str]().with_edges([("a", "b"), ("b", "c"), ("c", "d"), ("a", "d")])
    assert closure.above["d"] == {"d": 0, "c": 1, "b": 2, "a": 1}
    later = closure.with_edges([("d", "e")])
    assert later.above["e"]["a"] == 2

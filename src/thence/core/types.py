"""JSON's node types as the pipeline sees them, and how two of them meet.

    STRING
      |- FLOAT64 - INT64 - BOOL
      `- TIMESTAMP

`promote` is the lowest common ancestor in that tree: FLOAT64 and TIMESTAMP meet in STRING, BOOL and INT64 in INT64.
It is commutative, associative and idempotent, so that headers may be reduced in any order.
"""

from __future__ import annotations

from enum import StrEnum
from functools import reduce


class JsonType(StrEnum):
    """The type of a leaf. There is none for null: a null says nothing about its column."""

    BOOL = "bool"
    INT64 = "int64"
    FLOAT64 = "float64"
    TIMESTAMP = "timestamp"
    STRING = "string"


_PARENT = {
    JsonType.BOOL: JsonType.INT64,
    JsonType.INT64: JsonType.FLOAT64,
    JsonType.FLOAT64: JsonType.STRING,
    JsonType.TIMESTAMP: JsonType.STRING,
}


def _ancestors(leaf: JsonType) -> tuple[JsonType, ...]:
    return (leaf, *_ancestors(_PARENT[leaf])) if leaf in _PARENT else (leaf,)


_PROMOTED = {
    (a, b): next(candidate for candidate in _ancestors(a) if candidate in _ancestors(b))
    for a in JsonType
    for b in JsonType
}


def promote(first: JsonType, *others: JsonType) -> JsonType:
    """The narrowest type that holds the values of all."""
    return reduce(lambda a, b: _PROMOTED[a, b], others, first)


def widens_to(narrow: JsonType, wide: JsonType) -> bool:
    """Whether every value of `narrow` is also one of `wide`."""
    return _PROMOTED[narrow, wide] is wide

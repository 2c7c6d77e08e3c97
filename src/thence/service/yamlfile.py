"""Reads a YAML file safely and remembers on which line each value stands.

Only plain values are made (no tags that run code). A key that stands twice is refused, because one of the two would
be lost without a word.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import yaml

from thence.core.errors import ConfigError

_MOST_NODES = 50_000
_DEEPEST = 50


class Leaf(msgspec.Struct, frozen=True):
    """A value and where it was written. Outside of files everything is text, also numbers and truth values."""

    value: object
    origin: str
    text: bool = False


Tree = dict[str, "Tree | Leaf"]


def read_yaml(path: Path) -> Tree:
    """The mapping in a file, with the origin of each leaf."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            "config.unreadable",
            f"{path}: {error.strerror}",
            advice="Name a file that you may read with --config.",
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            "config.yaml", f"{path}: not UTF-8: {error.reason}", advice="Save the file as UTF-8."
        ) from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise _not_yaml(path, error) from error
    except RecursionError:
        raise _too_deep(path) from None
    if root is not None and _weight(root, _MOST_NODES) <= 0:
        raise _too_deep(path)
    if root is None:
        return {}
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            "config.yaml",
            f"{path}: the file holds no keys",
            advice="Write `key: value` lines; docs/reference/settings.md lists the keys.",
        )
    return _mapping(root, path)


def _weight(node: yaml.Node, left: int, depth: int = 0) -> int:
    """How many nodes are left of a budget after this one; aliases count each time, and a circle never ends."""
    left -= 1
    if depth > _DEEPEST:
        return 0
    below = node.value if isinstance(node.value, list) else []
    for item in below:
        for each in item if isinstance(item, tuple) else (item,):
            if left <= 0:
                return 0
            left = _weight(each, left, depth + 1)
    return left


def _too_deep(path: Path) -> ConfigError:
    return ConfigError(
        "config.yaml",
        f"{path}: nested too deeply, too large, or an alias that leads to itself",
        advice="Write it plainly; settings need no more than a few levels.",
    )


def _mapping(node: yaml.MappingNode, path: Path) -> Tree:
    tree: Tree = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        origin = f"{path}:{key_node.start_mark.line + 1}"
        if key in tree:
            raise ConfigError(
                "config.duplicate_key",
                f"{origin}: the key {key!r} stands twice in one mapping",
                advice="Remove one of the two.",
            )
        if isinstance(value_node, yaml.MappingNode) and value_node.value:
            tree[key] = _mapping(value_node, path)
        else:
            tree[key] = Leaf(_plain(value_node, path), origin)
    return tree


def _plain(node: yaml.Node, path: Path) -> object:
    constructor = yaml.constructor.SafeConstructor()
    try:
        return constructor.construct_document(node)
    except (yaml.YAMLError, ValueError) as error:
        raise _not_yaml(path, error) from error


def _not_yaml(path: Path, error: Exception) -> ConfigError:
    mark = getattr(error, "problem_mark", None)
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return ConfigError(
        "config.yaml",
        f"{place}: not valid YAML: {problem}",
        advice="Correct that line; check indentation, quotes and colons.",
    )

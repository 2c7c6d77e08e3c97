"""Turns flags, environment and file into Settings, and knows where each value came from.

Precedence: flag > environment (`THENCE_`, nesting `__`) > file > default. Unknown keys are refused with a suggestion.
Strings may refer to the environment (`${env.NAME}`, `${env.NAME|default}`); a secret may be `file:PATH`. All
problems are found in one pass; nothing is started when there is one.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from thence.core.errors import ConfigError
from thence.service.section import Secret, Section
from thence.service.sense import contradictions
from thence.service.settings import Address, Settings, Size
from thence.service.yamlfile import Leaf, Tree, read_yaml

PREFIX = "THENCE_"
FILE = "thence.yaml"
_LONGEST_SECRET = 1 << 16
# A Kubernetes service of our name puts these into every container of its namespace.
_FOREIGN = re.compile(r"THENCE_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_\w+)?)")
_RESERVED = {"THENCE_CONFIG", "THENCE_IVY_SETTINGS"}
_REFERENCE = re.compile(r"\$\{env\.([A-Za-z_][A-Za-z0-9_]*)(?:\|([^}]*))?\}")
_SECRET_IN_QUERY = re.compile(r"([?&][^=&]*(?:token|key|secret|password|sig)[^=&]*=)[^&]*", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]+@")
_SECRET_KEY = re.compile(
    r"password|passwd|secret|token|credential|(^|[^a-z])key([^a-z]|$)|apikey|accesskey", re.IGNORECASE
)


class Config(msgspec.Struct, frozen=True):
    """Settings, where each came from (by dotted key), and what is wrong with them."""

    settings: Settings
    origins: Mapping[str, str]
    problems: tuple[ConfigError, ...] = ()


def load(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read everything, or raise the first problem."""
    config = examine(file, flags, environment)
    if config.problems:
        raise config.problems[0]
    return config


def examine(
    file: Path | None = None,
    flags: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Config:
    """Read everything and return the settings as far as they are right, with all problems."""
    environment = os.environ if environment is None else environment
    reader = _Reader(environment)
    tree: Tree = {}
    for layer in _layers(reader, file, flags or {}, environment):
        reader.overlay(tree, layer, ())
    settings = reader.section(Settings, tree, ())
    return Config(settings, reader.origins, tuple(reader.problems or contradictions(settings)))


def shown(settings: object, path: tuple[str, ...] = ()) -> dict[str, object]:
    """Settings as plain values by dotted key, with secrets hidden."""
    found: dict[str, object] = {}
    pairs = (
        settings.items()
        if isinstance(settings, dict)
        else ((name, getattr(settings, name)) for name in settings.__struct_fields__)  # type: ignore[attr-defined]
    )
    for name, value in pairs:
        here = (*path, str(name))
        if isinstance(value, list) and value and isinstance(value[0], msgspec.Struct):
            value = {str(index): each for index, each in enumerate(value)}  # noqa: PLW2901 - shown as a map
        if isinstance(value, msgspec.Struct) or (isinstance(value, dict) and value):
            found.update(shown(value, here))
        else:
            found[".".join(here)] = _printable(value, name, free_form=isinstance(settings, dict))
    return found


def schema() -> dict[str, Any]:
    """A JSON Schema of `thence.yaml`, for editors."""
    return msgspec.json.schema(Settings, schema_hook=_schema_of)


def _schema_of(kind: type[Any]) -> dict[str, Any]:
    return {"type": ["string", "integer"] if kind is Size else "string", "title": kind.__name__}


def _printable(value: object, name: str, *, free_form: bool) -> object:
    if isinstance(value, Secret) or (free_form and _SECRET_KEY.search(name)):
        return "**********"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return _SECRET_IN_QUERY.sub(r"\1**********", _PASSWORD_IN_URL.sub("://**********@", str(value)))


def _layers(
    reader: _Reader, file: Path | None, flags: Mapping[str, object], environment: Mapping[str, str]
) -> Iterator[Tree]:
    named = file or (Path(environment["THENCE_CONFIG"]) if environment.get("THENCE_CONFIG") else None)
    if named is not None or Path(FILE).exists():
        try:
            yield read_yaml(named or Path(FILE))
        except ConfigError as problem:
            reader.problems.append(problem)
        reader.folder = (named or Path(FILE)).parent
    yield _nest(
        (name.removeprefix(PREFIX).split("__"), Leaf(value, name, text=True))
        for name, value in sorted(environment.items())
        if name.startswith(PREFIX) and name not in _RESERVED and not _FOREIGN.fullmatch(name)
    )
    yield _nest((key.split("."), Leaf(value, f"--set {key}", text=True)) for key, value in flags.items())


def _nest(pairs: Iterator[tuple[list[str], Leaf]]) -> Tree:
    tree: Tree = {}
    for path, leaf in pairs:
        here = tree
        for part in path[:-1]:
            below = here.get(part)
            if not isinstance(below, dict):
                below = here[part] = {}
            here = below
        here[path[-1]] = leaf
    return tree


class _Reader:
    """One pass over the tree; collects origins and problems."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.folder = Path()
        self.origins: dict[str, str] = {}
        self.problems: list[ConfigError] = []

    def overlay(self, below: Tree, above: Tree, path: tuple[str, ...]) -> None:
        """Lay a layer over those before it. Names from the environment are matched without regard to case."""
        spelled = {key.lower(): key for key in (*_keys_at(Settings, path), *below)}
        for key, value in above.items():
            name = spelled.get(key.lower(), key) if _from_environment(value) else key
            present = below.get(name)
            if isinstance(value, dict) and isinstance(present, dict):
                self.overlay(present, value, (*path, name))
            elif isinstance(value, dict):
                fresh: Tree = {}
                below[name] = fresh
                self.overlay(fresh, value, (*path, name))
            else:
                below[name] = value

    def section(self, kind: type[Any], tree: Tree, path: tuple[str, ...]) -> Any:
        """A struct from a mapping; what is wrong keeps its default and is noted."""
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
        values: dict[str, Any] = {}
        for name in (key for key in tree if key not in fields):
            self._unknown((*path, name), tree[name], list(fields))
        missing = [name for name in kind.__struct_fields__ if name not in tree and _is_required(kind, name)]
        if missing:
            self.problems.append(_incomplete(path, missing))
            return None
        for name, field in fields.items():
            here, value = (*path, name), tree.get(name)
            item = _section_in(field)
            if _is_section(field) and (isinstance(value, dict) or _is_nothing(value)):
                values[name] = self.section(field, value if isinstance(value, dict) else {}, here)
            elif item is not None and isinstance(value, dict) and get_origin(field) is dict:
                values[name] = {
                    key: self.section(item, _tree(each), (*here, key)) for key, each in value.items()
                }
            elif (
                get_origin(field) is list
                and item
                and isinstance(value, Leaf)
                and isinstance(value.value, list)
            ):
                trees = [_tree(Leaf(each, value.origin)) for each in value.value]
                values[name] = [self.section(item, tree, (*here, str(i))) for i, tree in enumerate(trees)]
            elif value is None:
                self.origins[".".join(here)] = "default"
            else:
                try:
                    values[name] = self._leaf(field, value, here)
                except ConfigError as problem:
                    self.problems.append(problem)
        return (
            kind(**values) if all(_is_required(kind, name) <= (name in values) for name in fields) else None
        )

    def _leaf(self, kind: Any, value: Tree | Leaf, path: tuple[str, ...]) -> Any:
        lax = any(leaf.text or _refers(leaf.value) for _, leaf in _leaves(value, path))
        for where, leaf in _leaves(value, path):
            self.origins[".".join(where)] = leaf.origin
        plain = self._plain(value, path)
        if isinstance(plain, dict) and get_origin(kind) is dict and str in get_args(kind)[1:]:
            plain = dict(_flat(plain))  # keys with dots, such as Spark's, were taken apart by --set
        try:
            return msgspec.convert(plain, kind, strict=not lax, dec_hook=self._custom)
        except msgspec.ValidationError as error:
            origin = next(leaf.origin for _, leaf in _leaves(value, path))
            hidden = _mentions(kind, Secret) or not isinstance(plain, (str, int, float, bool))
            cut = "a value that is not shown" if hidden else repr(plain)[:80]
            raise ConfigError(
                "config.wrong_value",
                f"{origin}: {'.'.join(path)}: {cut}: {str(error).split(' - at')[0]}",
                advice="docs/reference/settings.md says what stands there.",
            ) from None

    def _plain(self, value: Tree | Leaf, path: tuple[str, ...]) -> object:
        if isinstance(value, dict):
            return {name: self._plain(below, (*path, name)) for name, below in value.items()}
        return self._interpolated(value.value, value.origin, path)

    def _interpolated(self, value: object, origin: str, path: tuple[str, ...]) -> object:
        if isinstance(value, list):
            return [self._interpolated(item, origin, path) for item in value]
        if isinstance(value, dict):
            return {key: self._interpolated(item, origin, path) for key, item in value.items()}
        if not isinstance(value, str):
            return value

        def replaced(match: re.Match[str]) -> str:
            found = self.environment.get(match[1], match[2])
            if found is None:
                raise ConfigError(
                    "config.missing_variable",
                    f"{origin}: {'.'.join(path)}: the environment variable {match[1]} is not set",
                    advice=f"Set it, or give a default: ${{env.{match[1]}|default}}.",
                )
            return found

        return _REFERENCE.sub(replaced, value)

    def _custom(self, kind: type[Any], value: Any) -> Any:
        if kind is Size and isinstance(value, int) and not isinstance(value, bool):
            return Size(str(value))
        if not isinstance(value, str):
            raise ValueError(f"Expected `str`, got `{type(value).__name__}`")
        if kind in (Address, Size):
            return kind(value)
        if kind is Path:
            return _path(value)
        if kind is Secret:
            return Secret(self._secret(value))
        raise NotImplementedError(kind)

    def _secret(self, value: str) -> str:
        if not value.startswith("file:"):
            return value
        path = self.folder / value.removeprefix("file:")
        try:
            # A pipe would hang, and a device has no end.
            if path.exists() and not path.is_file():
                raise _secret_file(path, "no regular file")
            with path.open("rb") as file:
                return file.read(_LONGEST_SECRET).decode().strip()
        except (OSError, ValueError) as error:
            raise _secret_file(path, str(getattr(error, "strerror", None) or error)) from error

    def _unknown(self, path: tuple[str, ...], value: Tree | Leaf, known: Sequence[str]) -> None:
        origin = next((leaf.origin for _, leaf in _leaves(value, path)), FILE)
        near = difflib.get_close_matches(path[-1].lower(), known, n=1, cutoff=0.5)
        below = ".".join(path[:-1])
        self.problems.append(
            ConfigError(
                "config.unknown_key",
                f"{origin}: there is no setting {'.'.join(path)!r}",
                advice=f"Did you mean {'.'.join((*path[:-1], near[0]))!r}?"
                if near
                else f"Known{' below ' + below if below else ''}: {', '.join(known)}.",
            )
        )


def _leaves(value: Tree | Leaf, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    if isinstance(value, Leaf):
        yield path, value
    else:
        for name, below in value.items():
            yield from _leaves(below, (*path, name))


def _secret_file(path: Path, why: str) -> ConfigError:
    return ConfigError("config.secret_file", f"{path}: {why}", advice="Name a file that this user may read.")


def _section_in(kind: Any) -> type[Section] | None:
    """The section that a list or a map is made of."""
    items = [item for item in get_args(kind) if _is_section(item)]
    return items[-1] if items and get_origin(kind) in (list, dict) else None


def _tree(value: Tree | Leaf) -> Tree:
    if isinstance(value, dict):
        return value
    if not isinstance(value.value, dict):
        return {"": value}
    return {
        str(key): _tree(Leaf(each, value.origin))
        if isinstance(each, dict) and each
        else Leaf(each, value.origin)
        for key, each in value.value.items()
    }


def _path(text: str) -> Path:
    if "\0" in text or not text.isprintable():
        raise ValueError("Expected a path without control characters")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def _is_nothing(value: Tree | Leaf | None) -> bool:
    return value is None or (isinstance(value, Leaf) and value.value is None)


def _from_environment(value: Tree | Leaf) -> bool:
    return any(leaf.origin.startswith(PREFIX) for _, leaf in _leaves(value, ()))


def _keys_at(kind: Any, path: tuple[str, ...]) -> tuple[str, ...]:
    for name in path:
        if _is_section(kind):
            kind = next((field.type for field in msgspec.structs.fields(kind) if field.name == name), None)
        else:
            kind = _section_in(kind)
    return kind.__struct_fields__ if _is_section(kind) else ()


def _is_required(kind: type[Any], name: str) -> bool:
    field = next(each for each in msgspec.structs.fields(kind) if each.name == name)
    return field.required


def _incomplete(path: tuple[str, ...], missing: list[str]) -> ConfigError:
    return ConfigError(
        "config.missing_key",
        f"{'.'.join(path)}: {', '.join(missing)} must be set",
        advice="docs/reference/settings.md says what stands there.",
    )


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)


def _mentions(kind: Any, wanted: type) -> bool:
    if _is_section(kind):
        return any(_mentions(field.type, wanted) for field in msgspec.structs.fields(kind))
    return kind is wanted or any(_mentions(item, wanted) for item in get_args(kind))


def _refers(value: object) -> bool:
    return isinstance(value, str) and _REFERENCE.search(value) is not None


def _flat(values: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value

"""Finds the route of a path and a method.

A template is a path (`/healthz`), has named segments (`/namespaces/{namespace}/jobs`), or ends in a name for all the
rest (`/files/{path...}`). A literal segment wins over a named one, and that over a rest. Paths without a pattern cost
one look into a dictionary. HEAD comes from GET.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from thence.core.errors import InvariantBroken
from thence.http.exchange import Refused, Request, Response, Route, refusal

Routes = Mapping[str, Mapping[str, Route]]
"""Template to method to route."""

OTHER = "other"
"""The label of all paths that are not in the table."""

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Match(msgspec.Struct, frozen=True, gc=False):
    """The route of a request, its template as a label for metrics, and the values of the named segments."""

    route: Route
    template: str
    method: str
    params: Mapping[str, str] = {}


class RouteTable:
    """All routes of one server."""

    def __init__(self, routes: Routes) -> None:
        self._exact: dict[str, dict[str, Match]] = {}
        self._root = _Node()
        for template, methods in routes.items():
            matches = _matches(template, methods)
            self._root.add(template.split("/")[1:], template, matches)
            if "{" not in template:
                self._exact[template] = matches

    def find(self, method: str, path: str) -> Match:
        """The route; where there is none, one that says so."""
        methods = self._exact.get(path)
        if methods is not None:
            match = methods.get(method)
            return match if match is not None else _not_allowed(method, path, methods)
        return self._search(method, path)

    def _search(self, method: str, path: str) -> Match:
        found = self._root.find(_segments(path), ())
        if found is None:
            return _nothing(method, path)
        methods, values = found
        match = methods.get(method)
        if match is None:
            return _not_allowed(method, path, methods)
        names = _names(match.template)
        return msgspec.structs.replace(match, params=dict(zip(names, values, strict=True)))


class _Node:
    """One segment of the templates and what may follow it."""

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.named: _Node | None = None
        self.rest: dict[str, Match] | None = None
        self.methods: dict[str, Match] | None = None

    def add(self, segments: list[str], template: str, matches: dict[str, Match]) -> None:
        if not segments:
            self.methods = _once(self.methods, template, matches)
        elif segments[0].endswith("...}") and len(segments) == 1:
            self.rest = _once(self.rest, template, matches)
        elif segments[0].startswith("{"):
            self.named = self.named or _Node()
            self.named.add(segments[1:], template, matches)
        else:
            self.literal.setdefault(segments[0], _Node()).add(segments[1:], template, matches)

    def find(
        self, segments: tuple[str, ...], values: tuple[str, ...]
    ) -> tuple[dict[str, Match], tuple[str, ...]] | None:
        if not segments:
            return (self.methods, values) if self.methods is not None else None
        first, others = segments[0], segments[1:]
        found = None
        if first in self.literal:
            found = self.literal[first].find(others, values)
        if found is None and self.named is not None and first:
            found = self.named.find(others, (*values, first))
        if found is None and self.rest is not None:
            found = (self.rest, (*values, "/".join(segments)))
        return found


def _once(there: dict[str, Match] | None, template: str, matches: dict[str, Match]) -> dict[str, Match]:
    if there is not None:
        raise InvariantBroken("http.route_twice", f"two tables have a route for {template}")
    return matches


def _matches(template: str, methods: Mapping[str, Route]) -> dict[str, Match]:
    matches = {method: Match(route, template, _label(method)) for method, route in methods.items()}
    if "GET" in matches:
        matches.setdefault("HEAD", msgspec.structs.replace(matches["GET"], method="HEAD"))
    return matches


def _names(template: str) -> list[str]:
    return [each.strip("{}").removesuffix("...") for each in template.split("/") if each.startswith("{")]


def _segments(path: str) -> tuple[str, ...]:
    segments = path.split("/")[1:]
    if "%" not in path:
        return tuple(segments)
    try:
        decoded = tuple(unquote(each, errors="strict") for each in segments)
    except UnicodeDecodeError as error:
        raise _bad_path(path) from error
    if any("\0" in each for each in decoded):
        raise _bad_path(path)
    return decoded


def _bad_path(path: str) -> Refused:
    return Refused(
        refusal(
            400,
            "http.path",
            f"{path[:200]} is no path in UTF-8",
            "Escape its segments as UTF-8, without NUL.",
        ),
        reason="malformed",
    )


def _label(method: str) -> str:
    return method if method in _KNOWN_METHODS else OTHER


def _nothing(method: str, path: str) -> Match:
    said = refusal(404, "http.not_found", f"there is nothing at {path[:200]}", "GET / lists what is.")
    return Match(_always(said), OTHER, _label(method))


def _not_allowed(method: str, path: str, methods: Mapping[str, Match]) -> Match:
    allowed = ", ".join(sorted(methods))
    said = refusal(405, "http.method", f"{path[:200]} takes {allowed}", "Use one of these methods.")
    template = next(iter(methods.values())).template
    return Match(
        _always(msgspec.structs.replace(said, headers=(("allow", allowed),))), template, _label(method)
    )


def _always(response: Response) -> Route:
    def say(_: Request) -> Response:
        return response

    return Route(say)

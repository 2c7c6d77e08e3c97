"""The OpenAPI document of one process: its table of routes, with the words of `operations` and the schemas of events.

What a route takes comes from the table and from the settings in force, so the document says what this process does.
It is composed when somebody asks for it, and again when the settings have changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from thence import __version__, web
from thence.core.errors import Violation
from thence.http.exchange import Request, Response, Route
from thence.http.routes import Routes
from thence.service import apipage, lanes
from thence.service.lifecycle import Status
from thence.service.operations import (
    CODING,
    ERROR,
    EVERYWHERE,
    HEADERS,
    JSON,
    OPERATIONS,
    SCHEMAS,
    SHAPES,
    WITH_BODY,
    WITH_KEY,
    Operation,
    Says,
)
from thence.service.settings import LineageSettings

Document = dict[str, Any]
_UNKNOWN = Operation("page", "", {})


class ApiDescription:
    """Answers `/openapi.json` and `/docs`. `lineage` gives the settings in force.

    `routes` is set once all of them are known.
    """

    def __init__(self, lineage: Callable[[], LineageSettings]) -> None:
        self.routes: Routes = {}
        self._lineage = lineage
        self._composed: tuple[LineageSettings, Document] | None = None

    def own_routes(self) -> Routes:
        """Where it is found."""
        return {"/openapi.json": {"GET": Route(self._show)}, "/docs": {"GET": Route(self._show_page)}}

    def document(self) -> Document:
        """The document."""
        lineage = self._lineage()
        if self._composed is None or self._composed[0] is not lineage:
            self._composed = lineage, compose(self.routes, lineage)
        return self._composed[1]

    def _show(self, _: Request) -> Response:
        return Response(msgspec.json.encode(self.document()))

    def _show_page(self, _: Request) -> Response:
        return Response(
            apipage.render(self.document()), content_type="text/html; charset=utf-8", headers=web.HEADERS
        )


def compose(routes: Routes, lineage: LineageSettings) -> Document:
    """The document for these routes under these settings."""
    has_keys = bool(lineage.keys)
    components: Document = {
        "schemas": {**SHAPES, **_structs(), **lanes.event_schemas_of(lineage, SCHEMAS)},
        "headers": {name: _header(*said) for name, said in HEADERS.items()},
        "responses": {status: _answer(said) for status, said in _common().items()},
    }
    if has_keys:
        components["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key of this collector."}
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "thence", "version": __version__, "description": _ABOUT, "license": _LICENSE},
        "servers": [{"url": "/"}],
        "tags": [{"name": name} for name in sorted({each.tag for each in OPERATIONS.values()})],
        "paths": {_path(template): _methods(template, routes[template], has_keys) for template in routes},
        "components": components,
    }


def _methods(template: str, methods: Mapping[str, Route], has_keys: bool) -> Document:
    found = {
        method.lower(): _operation(template, method, route, has_keys) for method, route in methods.items()
    }
    if "GET" in methods:
        found.setdefault("head", _without_bodies(found["get"]))
    return found


def _operation(template: str, method: str, route: Route, has_keys: bool) -> Document:
    said = OPERATIONS.get((template, method), _UNKNOWN)
    takes_body, is_locked = route.body != "none", has_keys and bool(said.needs)
    written: Document = {
        "operationId": _id(method, template),
        "summary": said.summary,
        "tags": [said.tag],
        "security": [{"key": []}] if is_locked else [],
        "responses": dict(sorted(_answers(said, takes_body=takes_body, is_locked=is_locked))),
    }
    parameters = [*_segments(template), *said.parameters, *([CODING] if takes_body else [])]
    if parameters:
        written["parameters"] = parameters
    if said.description:
        written["description"] = said.description
    if takes_body:
        written["requestBody"] = {
            "required": True,
            "description": f"At most {route.max_body_bytes} bytes, decompressed.",
            "content": {JSON: {"schema": said.body}},
        }
    return written


def _answers(said: Operation, *, takes_body: bool, is_locked: bool) -> Iterator[tuple[str, Document]]:
    common = {**EVERYWHERE, **(WITH_BODY if takes_body else {}), **(WITH_KEY if is_locked else {})}
    for status in common.keys() - said.answers.keys():
        yield status, {"$ref": f"#/components/responses/{status}"}
    for status, own in said.answers.items():
        yield status, _answer(_joined(own, common[status]) if status in common else own)


def _joined(own: Says, common: Says) -> Says:
    """An answer whose status has a common meaning besides its own."""
    if own.content == common.content:
        return own
    schema = {"anyOf": [own.content[JSON], ERROR[JSON]]}
    return Says(f"{own.description} Or: {common.description}", {JSON: schema}, common.headers)


def _answer(said: Says) -> Document:
    names = ("traceparent", *said.headers)
    written: Document = {
        "description": said.description,
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in names},
    }
    if said.content:
        written["content"] = {kind: {"schema": schema} for kind, schema in said.content.items()}
    return written


def _without_bodies(operation: Document) -> Document:
    """HEAD: what GET answers, without bodies."""
    answers = {}
    for status, answer in operation["responses"].items():
        plain = _answer(_common()[status]) if "$ref" in answer else answer
        answers[status] = {key: value for key, value in plain.items() if key != "content"}
    return {
        **operation,
        "operationId": operation["operationId"].replace("get", "head", 1),
        "responses": answers,
    }


def _common() -> Mapping[str, Says]:
    return {**EVERYWHERE, **WITH_BODY, **WITH_KEY}


def _header(description: str, is_required: bool) -> Document:
    return {"description": description, "required": is_required, "schema": {"type": "string"}}


def _structs() -> Document:
    return msgspec.json.schema_components([Violation, Status], ref_template=SCHEMAS + "{name}")[1]


def _path(template: str) -> str:
    return template.replace("...}", "}")


def _segments(template: str) -> Iterator[Document]:
    for segment in _path(template).split("/"):
        if segment.startswith("{"):
            yield {
                "name": segment.strip("{}"),
                "in": "path",
                "required": True,
                "schema": {"type": "string", "minLength": 1},
            }


def _id(method: str, template: str) -> str:
    words = "".join(each if each.isalnum() else " " for each in template).split()
    return "_".join((method.lower(), *words))


_ABOUT = (
    "Collects OpenLineage events, keeps them on disk and forwards them. A failure inside, which is a bug, is answered "
    "with 500 and an Error."
)
_LICENSE = {"name": "Apache-2.0", "identifier": "Apache-2.0"}

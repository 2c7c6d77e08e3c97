"""The document about HTTP says what the table of routes says, under the settings in force."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31

from thence import web
from thence.collect.validate import Validator
from thence.http.exchange import Request
from thence.http.routes import RouteTable
from thence.service import config
from thence.service.openapi import ApiDescription
from thence.service.settings import LineageSettings
from thence.service.wire import Process


def process(directory: Path, **settings: object) -> Process:
    flags = {name.replace("__", "."): value for name, value in settings.items()}
    return Process(config.load(flags=flags, environment={}).settings, directory)


def described(process: Process) -> dict[str, Any]:
    (show,) = [each for each in served(process) if each[:2] == ("/openapi.json", "GET")]
    document: dict[str, Any] = msgspec.json.decode(show[2].route.handler(REQUEST).body)
    return document


def served(process: Process) -> Iterator[tuple[str, str, Any]]:
    """What the server itself would answer: template, method and route."""
    table: RouteTable = process._http._table
    nodes = [table._root]
    while nodes:
        node = nodes.pop()
        nodes += [*node.literal.values(), *([node.named] if node.named else [])]
        for methods in (node.methods, node.rest):
            for method, match in (methods or {}).items():
                yield match.template, method, match


REQUEST = Request("GET", "/", "", {}, "", "")


PASSING = {"forward__it__url": "http://127.0.0.1:1", "collect__lineage__pass_through": "it"}


@pytest.mark.parametrize("settings", [{}, PASSING])
def test_every_route_of_the_server_is_described_and_nothing_else(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    running = process(tmp_path, **settings)
    routes = {(template.replace("...", ""), method.lower()) for template, method, _ in served(running)}
    assert (("/api/v1/{path}", "head") in routes) == bool(settings)
    paths = described(running)["paths"]
    assert {(path, method) for path, methods in paths.items() for method in methods} == routes
    assert {"/metrics", "/healthz", "/api/v1/lineage", "/docs"} <= paths.keys()


def test_no_route_is_without_words(tmp_path: Path) -> None:
    for path, methods in described(process(tmp_path, **PASSING))["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], f"{method} {path}: say in thence.service.operations what it is for"
            assert any("$ref" not in answer for answer in operation["responses"].values())


def test_what_is_switched_off_is_not_described(tmp_path: Path) -> None:
    assert "/metrics" not in described(process(tmp_path, metrics__prometheus="false"))["paths"]


def test_it_is_openapi(tmp_path: Path) -> None:
    document = described(process(tmp_path, **PASSING))
    jsonschema_rs.validator_for(OPENAPI_31).validate(document)
    known = {
        f"#/components/{kind}/{name}" for kind, named in document["components"].items() for name in named
    }
    referred = set(re.findall(r'"\$ref":"([^"]+)"', msgspec.json.encode(document).decode()))
    assert referred <= known
    ids = [each["operationId"] for methods in document["paths"].values() for each in methods.values()]
    assert len(set(ids)) == len(ids)


def test_keys_are_asked_for_where_they_are_set(tmp_path: Path) -> None:
    free = described(process(tmp_path))
    (tmp_path / "thence.yaml").write_text("collect: {lineage: {keys: [{id: one, key: secret}]}}")
    settings = config.load(tmp_path / "thence.yaml", environment={}).settings
    locked = described(Process(settings, tmp_path))
    for document, has_keys in ((free, False), (locked, True)):
        operation = document["paths"]["/api/v1/lineage"]["post"]
        assert operation["security"] == ([{"key": []}] if has_keys else [])
        assert ("401" in operation["responses"]) == has_keys
        assert document["paths"]["/healthz"]["get"]["security"] == []
    assert "secret" not in msgspec.json.encode(locked["components"]["securitySchemes"]).decode()


def test_the_level_decides_what_an_event_is(tmp_path: Path) -> None:
    event = {
        "eventTime": "2026-11-19T10:00:00Z",
        "producer": "no uri at all",
        "schemaURL": "urn:x",
        "job": {"namespace": "a", "name": "b"},
    }
    bare = {name: value for name, value in event.items() if name != "schemaURL"}
    for level, expected in (("strict", (False, False)), ("spec", (True, False)), ("lenient", (True, True))):
        document = described(process(tmp_path, collect__lineage__validate=level))
        schema = {"$ref": "#/components/schemas/Event", "components": document["components"]}
        check = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
        assert (check.is_valid(event), check.is_valid(bare)) == expected


def test_settings_that_change_change_the_document() -> None:
    settings = [LineageSettings()]
    api = ApiDescription(lambda: settings[-1])
    before = api.document()
    assert api.document() is before
    settings.append(LineageSettings(validate="strict"))
    assert api.document()["components"]["schemas"] != before["components"]["schemas"]


def test_the_kind_of_an_event_is_told_as_the_validator_tells_it(tmp_path: Path) -> None:
    document = described(process(tmp_path))
    schema = {"$ref": "#/components/schemas/Event", "components": document["components"]}
    described_as = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    base = {"eventTime": "2026-11-19T10:00:00Z", "producer": "urn:x", "schemaURL": "urn:x"}
    good = {"namespace": "a", "name": "b"}
    values: dict[str, list[object]] = {
        "run": [None, {"runId": "0190f2d0-0000-7000-8000-000000000000"}, {}],
        "job": [None, good, {}],
        "dataset": [None, good, {}],
    }
    validator, verdicts = Validator(), []
    for chosen in itertools.product(*values.values()):
        event = {
            **base,
            **{name: value for name, value in zip(values, chosen, strict=True) if value is not None},
        }
        verdicts.append(validator.check_value(event).valid)
        assert described_as.is_valid(event) == verdicts[-1], event
    assert 5 < sum(verdicts) < 20


def test_the_page_names_every_path_and_lets_nothing_foreign_in(tmp_path: Path) -> None:
    running = process(tmp_path)
    (show,) = [each for each in served(running) if each[:2] == ("/docs", "GET")]
    answer = show[2].route.handler(REQUEST)
    page = answer.body.decode()
    assert answer.headers == web.HEADERS
    assert "<script" not in page
    assert "style=" not in page
    assert set(re.findall(r'(?:src|href)="([^"]+)"', page)) <= {"/icon.svg", "/style.css", "/openapi.json"}
    for path in described(running)["paths"]:
        assert f" {path}</code>" in page

"""What each route is for, as data: the words of the OpenAPI document, of `/docs`, and nothing that code depends on.

A route of the process that is missing here still appears in the document, without words; a test refuses that. What is
the same for many routes stands once: the answers to requests that are wrong as HTTP, and the headers of answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from thence.collect.lineage import EVENT_ID

Schema = Mapping[str, Any]
SCHEMAS = "#/components/schemas/"


class Says(msgspec.Struct, frozen=True):
    """An answer of one status: what it means, and what its body is, by media type."""

    description: str
    content: Mapping[str, Schema] = {}
    headers: tuple[str, ...] = ()


class Operation(msgspec.Struct, frozen=True):
    """One method at one path. `needs` is the role of the API key, where keys are set."""

    tag: Literal["events", "health", "page", "documentation", "passed through"]
    summary: str
    answers: Mapping[str, Says]
    description: str = ""
    body: Schema = {}
    parameters: tuple[Schema, ...] = ()
    needs: Literal["", "write", "read"] = ""


def _refer(name: str) -> Schema:
    return {"$ref": SCHEMAS + name}


def _text(media_type: str) -> Mapping[str, Schema]:
    return {media_type: {"type": "string"}}


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}


JSON = "application/json"
ERROR = {JSON: _refer("Error")}
_FILE_HEADERS = ("content-security-policy", "referrer-policy", "cache-control")
_TRACE = _header("traceparent", "W3C Trace Context; kept with the event and sent on with it.")
_EVENT_ID = _header(EVENT_ID, "The id of an event that is sent again, a UUID; anything else counts as none.")

CODING: Schema = {
    "name": "Content-Encoding",
    "in": "header",
    "description": "How the body is compressed, in any case of letters. The limit counts decompressed bytes.",
    "schema": {"enum": ["gzip", "x-gzip", "deflate", "zstd", "identity", ""]},
}
EVERYWHERE: Mapping[str, Says] = {
    "400": Says("What came is no HTTP, or is not what is taken here; the connection may be closed.", ERROR),
    "405": Says("Another method is meant; `Allow` names those that there are.", ERROR, ("allow",)),
    "408": Says("The request came too slowly; the connection is closed.", ERROR),
    "413": Says("The body, decompressed, is too large.", ERROR),
    "414": Says("The address is too long.", ERROR),
    "417": Says("The header `Expect` asks for something other than `100-continue`.", ERROR),
    "431": Says("The header fields are too many or too large.", ERROR),
    "501": Says("The transfer coding is another than `chunked`.", ERROR),
    "503": Says("Not now: there is too much at once. Send it again.", ERROR, ("retry-after",)),
    "505": Says("The version of HTTP is neither 1.1 nor 1.0.", ERROR),
}
"""What every route answers to a request that is wrong or comes at a bad time."""

WITH_BODY: Mapping[str, Says] = {
    "415": Says("The `Content-Encoding` is not known here.", ERROR, ("accept-encoding",))
}
WITH_KEY: Mapping[str, Says] = {
    "401": Says("An API key is needed, or this one may not do this.", ERROR, ("www-authenticate",))
}

HEADERS: Mapping[str, tuple[str, bool]] = {
    "traceparent": ("W3C Trace Context: that of the request, or a fresh one.", True),
    "allow": ("The methods that there are.", False),
    "accept-encoding": ("The codings that are taken.", True),
    "retry-after": ("Seconds.", False),
    "www-authenticate": ("Always `Bearer`.", True),
    "content-security-policy": ("Nothing foreign is let in.", True),
    "referrer-policy": ("Nothing is told to others.", True),
    "cache-control": ("Ask whether it has changed.", True),
}
"""What they say, and whether they are always there where they are named."""


def _file(summary: str, media_type: str) -> Operation:
    return Operation("page", summary, {"200": Says("The file.", _text(media_type), _FILE_HEADERS)})


_PASSED = Operation(
    "passed through",
    "Passed to the destination that `collect.lineage.pass_through` names",
    {
        "400": Says("A step of the path is `.` or `..`, or it is no request.", ERROR),
        "502": Says("The destination cannot be reached, broke off, or answered with more than 16 MB.", ERROR),
        "503": Says("Too many requests wait for it, or there is too much at once.", ERROR, ("retry-after",)),
        "504": Says("The destination did not answer in time.", ERROR),
        "508": Says("The destination leads back to this process.", ERROR),
        "default": Says("What the destination answers.", {"*/*": {}}),
    },
    "Path and query go as they came; `path` may have several segments.",
    needs="read",
)

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    **{
        (path, "GET"): _PASSED
        for path in ("/api/v1/{path...}", "/api/v2/{path...}", "/api/v1/lineage", "/api/v1/lineage/batch")
    },
    ("/", "GET"): _file("The page: what runs here", "text/html"),
    ("/style.css", "GET"): _file("Its style", "text/css"),
    ("/page.js", "GET"): _file("Its script", "text/javascript"),
    ("/icon.svg", "GET"): _file("Its icon", "image/svg+xml"),
    ("/openapi.json", "GET"): Operation(
        "documentation",
        "This document, true for this process and its settings",
        {"200": Says("OpenAPI 3.1.", {JSON: {"type": "object", "required": ["openapi", "paths"]}})},
    ),
    ("/docs", "GET"): Operation(
        "documentation",
        "This document as a page",
        {"200": Says("HTML without scripts.", _text("text/html"), _FILE_HEADERS)},
    ),
    ("/healthz", "GET"): Operation(
        "health", "Whether this process lives", {"200": Says("It does.", {JSON: _refer("Health")})}
    ),
    ("/readyz", "GET"): Operation(
        "health",
        "Whether every service is ready",
        {
            "200": Says("Every one is.", {JSON: _refer("Readiness")}),
            "503": Says("One is not; it is said which, and why.", {JSON: _refer("Readiness")}),
        },
    ),
    ("/metrics", "GET"): Operation(
        "health",
        "All figures, for Prometheus",
        {
            "200": Says(
                "In the format that `Accept` asks for.",
                {**_text("text/plain"), **_text("application/openmetrics-text")},
            )
        },
    ),
    ("/api/v1/lineage", "POST"): Operation(
        "events",
        "One OpenLineage event",
        {
            "200": Says("It is on disk, and is forwarded from there.", {JSON: _refer("Accepted")}),
            "400": Says(
                "It breaks the specification and was given to the failed-event handlers, or it is no request.",
                ERROR,
            ),
            "503": Says("It cannot be kept now. Send it again.", ERROR, ("retry-after",)),
        },
        "Checked, appended to the journal and synced before the answer, whatever is behind that. Unless the level is "
        "`strict`, an `eventTime` without a zone is taken too and read as UTC. The years are 0001 to 9999, and objects "
        "and arrays are nested at most 100 deep.",
        body=_refer("Event"),
        parameters=(_EVENT_ID, _TRACE),
        needs="write",
    ),
    ("/api/v1/lineage/batch", "POST"): Operation(
        "events",
        "Many OpenLineage events",
        {
            "200": Says("The verdict on each event that was not kept.", {JSON: _refer("BatchVerdict")}),
            "204": Says("All are on disk."),
            "503": Says("None can be kept now. Send them again.", ERROR, ("retry-after",)),
        },
        "The valid ones are kept whatever becomes of the others.",
        body={
            "type": "array",
            "description": "Each should be an Event. What is none is named in the answer.",
            "items": {"anyOf": [_refer("Event"), {}]},
        },
        parameters=(_TRACE,),
        needs="write",
    ),
}

_COUNT = {"type": "integer", "minimum": 0}
_FAILED_EVENT: Schema = {
    "type": "object",
    "required": ["index", "reason", "retriable"],
    "properties": {
        "index": {**_COUNT, "description": "The place of the event in the batch."},
        "reason": {"type": "string"},
        "retriable": {"type": "boolean", "description": "Whether it may be kept when it is sent again."},
        "violations": {"type": "array", "items": _refer("Violation")},
    },
}
_COUNTS = ("received", "successful", "failed", "retriable", "non_retriable")

SHAPES: Mapping[str, Schema] = {
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "message", "advice"],
                "properties": {
                    "code": {"type": "string", "description": "Stable; docs/errors.md explains it."},
                    "message": {"type": "string", "description": "What happened."},
                    "advice": {"type": "string", "description": "What to do."},
                    "violations": {"type": "array", "items": _refer("Violation")},
                },
            }
        },
    },
    "Health": {
        "type": "object",
        "required": ["status", "version"],
        "properties": {"status": {"const": "alive"}, "version": {"type": "string"}},
    },
    "Readiness": {
        "type": "object",
        "required": ["status", "version", "services"],
        "properties": {
            "status": {"enum": ["ready", "unready"]},
            "version": {"type": "string"},
            "services": {"type": "array", "items": _refer("Status")},
        },
    },
    "Accepted": {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string", "format": "uuid"}},
    },
    "BatchVerdict": {
        "type": "object",
        "required": ["status", "summary", "failed_events"],
        "properties": {
            "status": {"const": "partial_success"},
            "summary": {
                "type": "object",
                "required": list(_COUNTS),
                "properties": dict.fromkeys(_COUNTS, _COUNT),
            },
            "failed_events": {"type": "array", "minItems": 1, "items": _FAILED_EVENT},
        },
    },
}

"""The OpenAPI document as a page that a person can read: plain HTML, made here, without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>thence: HTTP</title>
<link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/style.css">
</head>
<body>
<header>
  <img src="/icon.svg" alt="" width="36" height="36">
  <h1>thence over HTTP</h1>
  <p><a href="/openapi.json">/openapi.json</a> says the same for programs</p>
</header>
<main>
"""
_TAIL = "</main>\n</body>\n</html>\n"


def render(document: Mapping[str, Any]) -> bytes:
    """The page."""
    return "".join((_HEAD, *_sections(document), _TAIL)).encode()


def _sections(document: Mapping[str, Any]) -> Iterator[str]:
    answers = document["components"]["responses"]
    yield f"<p>{_text(document['info']['description'])}</p>\n"
    for path, methods in document["paths"].items():
        yield "<section>\n"
        for method, operation in methods.items():
            if method == "head" and "get" in methods:
                continue
            also = ", HEAD" if method == "get" and "head" in methods else ""
            yield f"<h2><code>{method.upper()}{also} {_text(path)}</code></h2>\n"
            yield from _operation(operation)
        yield "</section>\n"
    yield "<section>\n<h2>What every path may answer</h2>\n"
    yield from _table("answer", ((status, answer["description"]) for status, answer in answers.items()))
    yield "</section>\n"


def _operation(operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<p>{_text(operation['summary'])}. {_text(operation.get('description', ''))}</p>\n"
    if operation["security"]:
        yield "<p>Needs an API key: <code>Authorization: Bearer KEY</code>.</p>\n"
    if body := operation.get("requestBody"):
        kinds = ", ".join(body["content"])
        yield f"<p>Takes <code>{_text(kinds)}</code>. {_text(body['description'])}</p>\n"
    parameters = operation.get("parameters", ())
    if parameters:
        yield from _table("sent as", ((each["name"], _about(each)) for each in parameters))
    own = ((status, answer) for status, answer in operation["responses"].items() if "$ref" not in answer)
    yield from _table("answer", ((status, _kind(answer)) for status, answer in own))


def _about(parameter: Mapping[str, Any]) -> str:
    values = [value for value in parameter["schema"].get("enum", ()) if value]
    one_of = f" One of: {', '.join(values)}." if values else ""
    return f"{parameter.get('description', 'Part of the path.')}{one_of}"


def _kind(answer: Mapping[str, Any]) -> str:
    kinds = ", ".join(answer.get("content", ()))
    return f"{answer['description']} ({kinds})" if kinds else str(answer["description"])


def _table(name: str, rows: Iterator[tuple[str, str]]) -> Iterator[str]:
    yield f'<table>\n<tr><th scope="col">{name}</th><th scope="col">what it means</th></tr>\n'
    for first, second in rows:
        yield f"<tr><td><code>{_text(first)}</code></td><td>{_text(second)}</td></tr>\n"
    yield "</table>\n"


def _text(words: str) -> str:
    return escape(str(words))

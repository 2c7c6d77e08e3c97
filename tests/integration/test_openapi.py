"""The document at /openapi.json is true: schemathesis believes every word of it and finds nothing that differs."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.integration.openapi_hooks import PACK
from tests.integration.test_collector import RUN, Door, door
from tests.receiver import Receiver

KEY = "Authorization: Bearer secret-one"
ALL_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with door(tmp_path_factory.mktemp("free") / "state") as running:
        yield running


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    directory = tmp_path_factory.mktemp("locked")
    (directory / "thence.yaml").write_text("collect: {lineage: {keys: [{id: one, key: secret-one}]}}")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("THENCE_CONFIG", str(directory / "thence.yaml"))
            running = stack.enter_context(door(directory / "state"))
        yield running


def document(door: Door) -> dict[str, Any]:
    status, headers, body = door.ask("GET", "/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


def believe(door: Door, directory: Path, *options: str, one_facet_of: int = 12) -> str:
    """Run schemathesis with all its checks, and return what it says."""
    program = [sys.executable, "-m", "schemathesis.cli", "run", f"http://{door.address}/openapi.json"]
    program += ["--checks", "all", "--seed", "1", "--no-color", "--generation-database", "none", *options]
    hooks = {
        "SCHEMATHESIS_HOOKS": "tests.integration.openapi_hooks",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "ONE_FACET_OF": str(one_facet_of),
    }
    done = subprocess.run(
        program, cwd=directory, env=os.environ | hooks, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def generated(said: str) -> int:
    found = re.search(r"(\d+) generated, \1 passed", said)
    assert found, said
    return int(found[1])


def test_every_check_of_schemathesis_passes(locked: Door, tmp_path: Path) -> None:
    said = believe(locked, tmp_path, "--max-examples", "10", "-H", KEY)
    assert generated(said) > 1000
    assert "19 selected / 19 total" in said
    for name in ("accepted", "rejected", "unauthorized"):
        assert locked.metric(f"thence_events_{name}_total") > 0


@pytest.mark.parametrize(("level", "one_facet_of"), [("strict", 6), ("lenient", 6), ("spec", 1)])
def test_what_the_document_calls_an_event_is_taken_and_nothing_else(
    tmp_path: Path, level: str, one_facet_of: int
) -> None:
    with door(tmp_path / "state", f"collect.lineage.validate={level}") as running:
        options = ("--phases", "fuzzing", "--include-path", "/api/v1/lineage", "--max-examples", "20")
        believe(running, tmp_path, "--mode", "positive", *options, one_facet_of=one_facet_of)
        assert running.metric("thence_events_accepted_total") >= 15
        believe(running, tmp_path, "--mode", "negative", *options, one_facet_of=one_facet_of)
        assert running.metric("thence_events_rejected_total") > 3


def test_what_is_passed_through_is_as_described(tmp_path: Path) -> None:
    with Receiver() as behind:
        settings = (f"forward.behind.url={behind.url('')}", "collect.lineage.pass_through=behind")
        with door(tmp_path / "state", *settings) as running:
            said = believe(running, tmp_path, "--include-tag", "passed through", "--max-examples", "10")
    assert generated(said) > 50
    assert "8 selected" in said
    assert len({request.path for request in behind.requests}) > 10


def test_methods_that_are_not_described_are_not_there(free: Door) -> None:
    for path, methods in document(free)["paths"].items():
        for method in ALL_METHODS:
            status, headers, _ = free.ask(method, path)
            if method.lower() in methods:
                assert status not in (404, 405), (method, path)
            else:
                assert status == 405
                assert {each.lower() for each in headers["allow"].split(", ")} == set(methods)


def raw(door: Door, request: bytes) -> tuple[int, bytes]:
    host, _, port = door.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), body


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join(
        (f"{method} {path} HTTP/1.1", "Host: t", "Connection: close", *fields, "", "")
    ).encode()


LONG = "x" * 20_000
WRONG = {
    "400": ("Host: second",),
    "413": ("Content-Length: 99999999999",),
    "414": (),
    "415": ("Content-Encoding: br", "Content-Length: 2"),
    "417": ("Expect: something", "Content-Length: 2"),
    "431": tuple(f"x-{number}: {LONG[:1000]}" for number in range(70)),
    "501": ("Transfer-Encoding: gzip",),
    "505": (),
}


@pytest.mark.parametrize("status", WRONG)
@pytest.mark.parametrize(("method", "path"), [("GET", "/readyz"), ("POST", "/api/v1/lineage")])
def test_what_is_wrong_as_http_is_answered_as_described(
    free: Door, method: str, path: str, status: str
) -> None:
    described = document(free)
    request = head(method, path + (f"?{LONG}" if status == "414" else ""), *WRONG[status])
    if status == "505":
        request = request.replace(b"HTTP/1.1", b"HTTP/1.7")
    if status == "413" and method == "GET":
        # A declared length is not read by a path that takes no body; one that is not declared stops at the limit.
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        request = head(method, path, "Transfer-Encoding: chunked") + chunk * 2 + b"0\r\n\r\n"
    answers = described["paths"][path][method.lower()]["responses"]
    assert (status in answers) == (status != "415" or method == "POST")
    if status in answers:
        said, body = raw(free, request)
        assert str(said) == status
        check(described, answers[status], body)


def check(described: dict[str, Any], answer: dict[str, Any], body: bytes) -> None:
    if "$ref" in answer:
        answer = described["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    schema = answer["content"]["application/json"]["schema"]
    jsonschema_rs.validate({**schema, "components": described["components"]}, json.loads(body))


def test_a_journal_that_is_full_is_answered_as_described(tmp_path: Path) -> None:
    settings = ("journal.lineage.when_full=refuse", "journal.lineage.max_bytes=20000")
    with door(tmp_path / "state", *settings) as full:
        described, body = document(full), json.dumps(RUN).encode()
        while full.post(RUN)[0] == 200:
            pass
        for path, sent in (("/api/v1/lineage", body), ("/api/v1/lineage/batch", b"[" + body + b"]")):
            status, headers, said = full.ask("POST", path, sent)
            assert status == 503
            assert headers["retry-after"]
            check(described, described["paths"][path]["post"]["responses"]["503"], said)
        status, _, said = full.ask("GET", "/readyz")
        assert status == 503
        check(described, described["paths"]["/readyz"]["get"]["responses"]["503"], said)


def test_every_coding_that_is_described_is_taken(free: Door) -> None:
    parameters = document(free)["paths"]["/api/v1/lineage"]["post"]["parameters"]
    (coding,) = [each for each in parameters if each["name"] == "Content-Encoding"]
    assert coding["schema"]["enum"] == list(PACK)
    body = json.dumps(RUN).encode()
    for name, pack in PACK.items():
        assert free.post(pack(body), content_encoding=name.upper())[0] == 200
        assert free.kept()[-1] == body

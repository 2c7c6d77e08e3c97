"""`thence collect` as a client meets it: what is answered, what is kept, and what is told to whom."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from thence.journal.letters.store import SqliteDeadLetters
from thence.journal.view import JournalView

RUN = {
    "eventType": "START",
    "eventTime": "2026-11-19T10:00:00Z",
    "producer": "https://producer.example/p",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": "0190f2d0-0000-7000-8000-000000000000"},
    "job": {"namespace": "shop", "name": "orders"},
}


class Door:
    def __init__(self, process: subprocess.Popen[str], url: str, state: Path) -> None:
        self.process = process
        self.address = urlsplit(url).netloc
        self.state = state

    def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def post(self, event: object, path: str = "/api/v1/lineage", **headers: str) -> tuple[int, Any]:
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        status, _, answer = self.ask("POST", path, body, **headers)
        return status, json.loads(answer) if answer else None

    def metric(self, name: str) -> float:
        lines = self.ask("GET", "/metrics")[2].decode().splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith((name + " ", name + "{"))
        )

    def kept(self) -> list[bytes]:
        view = JournalView(self.state / "journal" / "lineage")
        return [record.event.payload for record in view.records(1, None)]


@contextmanager
def door(state: Path, *settings: str) -> Iterator[Door]:
    flags = [word for setting in settings for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "thence",
        "--json",
        "--state",
        str(state),
        *flags,
        "collect",
        "--listen",
        "127.0.0.1:0",
    ]
    with state.with_suffix(".log").open("a") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        url = next((str(line["url"]) for line in lines if "url" in line), None)
        assert url, state.with_suffix(".log").read_text()
        yield Door(process, url, state)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with door(tmp_path_factory.mktemp("door") / "state") as running:
        yield running


def test_an_event_is_answered_with_its_id_and_kept_byte_for_byte(running: Door) -> None:
    body = json.dumps(RUN, indent=3).encode().replace(b"orders", "b\u00fcrsten \U0001f9f9".encode())
    status, answer = running.post(body)
    assert status == 200
    assert len(answer["id"]) == 36
    assert running.kept()[-1] == body


def test_dataset_and_job_events_are_taken(running: Door) -> None:
    for kind, named in (("JobEvent", {"job": RUN["job"]}), ("DatasetEvent", {"dataset": RUN["job"]})):
        event = {name: RUN[name] for name in ("eventTime", "producer")} | named
        event["schemaURL"] = str(RUN["schemaURL"]).replace("RunEvent", kind)
        assert running.post(event)[0] == 200


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_compressed_bodies_are_kept_plain(running: Door, coding: str) -> None:
    body = json.dumps(RUN | {"eventType": coding.upper()[:0] + "RUNNING"}).encode()
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    assert running.post(packed, content_encoding=coding)[0] == 200
    assert running.kept()[-1] == body


def test_what_is_wrong_is_named_by_path_rule_and_value(running: Door) -> None:
    broken = RUN | {"run": {"runId": "zz", "facets": {"parent": {"run": {"runId": 5}}}}}
    before = running.metric("thence_events_rejected_total")
    status, answer = running.post(broken)
    assert status == 400
    assert answer["error"]["code"] == "event.invalid"
    found = {(each["path"], each["rule"]) for each in answer["error"]["violations"]}
    assert ("run/runId", "format.uuid") in found
    assert any(path.startswith("run/facets/parent") for path, _ in found)
    assert running.metric("thence_events_rejected_total") == before + 1


def test_what_was_refused_is_kept_with_its_reason_before_the_answer(running: Door) -> None:
    body = json.dumps(RUN | {"eventTime": "yesterday", "producer": "https://one.example"}).encode()
    assert running.post(body)[0] == 400
    letters = SqliteDeadLetters.visit(running.state / "failed" / "failed.db")
    assert letters is not None
    kept = [letter for letter in letters.find(limit=1000) if letter.event.payload == body]
    letters.close()
    assert len(kept) == 1
    assert "eventTime" in kept[0].reason
    assert kept[0].remote == "127.0.0.1"


def test_a_batch_has_a_verdict_for_each_event(running: Door) -> None:
    before = len(running.kept())
    status, answer = running.post([RUN, {}, RUN, {"run": 1}, RUN], "/api/v1/lineage/batch")
    assert status == 200
    assert answer["status"] == "partial_success"
    expected = {"received": 5, "successful": 3, "failed": 2, "retriable": 0, "non_retriable": 2}
    assert answer["summary"] == expected
    assert [each["index"] for each in answer["failed_events"]] == [1, 3]
    assert len(running.kept()) == before + 3
    assert running.post([RUN, RUN], "/api/v1/lineage/batch") == (204, None)
    assert running.post([], "/api/v1/lineage/batch") == (204, None)
    assert running.post({"no": "array"}, "/api/v1/lineage/batch")[0] == 400


def test_a_trace_is_kept_with_the_event(running: Door) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert running.post(RUN, traceparent=parent)[0] == 200
    *_, last = JournalView(running.state / "journal" / "lineage").records(1, None)
    assert last.event.traceparent == parent


def test_an_id_that_a_client_gives_is_kept(running: Door) -> None:
    given = "0190f2d0-1111-7000-8000-000000000000"
    assert running.post(RUN, thence_event_id=given) == (200, {"id": given})
    status, answer = running.post(RUN, thence_event_id="nonsense")
    assert status == 200
    assert answer["id"] != given


def test_keys_decide_who_may_send(tmp_path: Path) -> None:
    (tmp_path / "thence.yaml").write_text(
        "collect: {lineage: {keys: [{id: airflow, key: secret-one}, {id: viewer, key: secret-two, role: read}]}}"
    )
    command = [sys.executable, "-m", "thence", "--config", str(tmp_path / "thence.yaml"), "config", "show"]
    assert "secret-" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    os.environ["THENCE_CONFIG"] = str(tmp_path / "thence.yaml")
    try:
        with door(tmp_path / "state") as closed:
            assert closed.post(RUN)[0] == 401
            assert closed.post(RUN, authorization="Bearer wrong")[0] == 401
            assert closed.post(RUN, authorization="Bearer secret-two")[0] == 401
            assert closed.post([RUN], "/api/v1/lineage/batch", authorization="Bearer secret-two")[0] == 401
            assert closed.post(RUN, authorization="Bearer secret-one")[0] == 200
            *_, last = JournalView(closed.state / "journal" / "lineage").records(1, None)
            assert last.event.source == "airflow"
            assert closed.metric("thence_events_unauthorized_total") == 4
    finally:
        del os.environ["THENCE_CONFIG"]
    everything = b"".join(
        path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".yaml"
    )
    assert b"secret-one" not in everything


@pytest.mark.parametrize(("level", "status"), [("strict", 400), ("spec", 400), ("lenient", 200)])
def test_levels_decide_what_is_valid(tmp_path: Path, level: str, status: int) -> None:
    event = {name: value for name, value in RUN.items() if name != "schemaURL"}
    with door(tmp_path / "state", f"collect.lineage.validate={level}") as chosen:
        assert chosen.post(event)[0] == status


def test_a_full_journal_that_may_not_forget_asks_to_come_back(tmp_path: Path) -> None:
    settings = ("journal.lineage.when_full=refuse", "journal.lineage.max_bytes=20000")
    with door(tmp_path / "state", *settings) as full:
        answers = [full.post(RUN)[0] for _ in range(80)]
        assert answers[0] == 200
        assert answers[-1] == 503
        assert full.ask("POST", "/api/v1/lineage", json.dumps(RUN).encode())[1]["retry-after"]
        assert len(full.kept()) == answers.count(200)
        assert full.ask("GET", "/readyz")[0] == 503
        assert full.ask("GET", "/healthz")[0] == 200


def test_a_full_journal_that_may_forget_counts_what_expired(tmp_path: Path) -> None:
    with door(
        tmp_path / "state", "journal.lineage.max_bytes=20000", "journal.lineage.partition.bytes=5000"
    ) as full:
        assert {full.post(RUN)[0] for _ in range(120)} == {200}
        expired = full.metric("thence_journal_expired_total")
        assert expired > 0
        assert len(full.kept()) == 120 - expired
        assert full.ask("GET", "/readyz")[0] == 200


def test_killed_under_load_it_has_everything_that_it_acknowledged(tmp_path: Path) -> None:
    acknowledged = []
    for _ in range(3):
        with door(tmp_path / "state") as fragile:
            for _ in range(40):
                acknowledged.append(fragile.post(RUN)[1]["id"])
            fragile.process.kill()
    view = JournalView(tmp_path / "state" / "journal" / "lineage")
    assert [str(record.event.id) for record in view.records(1, None)] == acknowledged


def test_a_hangup_reads_the_settings_again_without_dropping_a_connection(tmp_path: Path) -> None:
    file, target = tmp_path / "thence.yaml", tmp_path / "out.ndjson"
    file.write_text("collect: {lineage: {validate: strict}}")
    os.environ["THENCE_CONFIG"] = str(file)
    event = {name: value for name, value in RUN.items() if name != "schemaURL"}
    try:
        with door(tmp_path / "state") as running:
            connection = http.client.HTTPConnection(running.address, timeout=60)
            assert said(connection, event) == 400
            lenient = "collect: {lineage: {validate: lenient}}\n"
            file.write_text(lenient + f"forward: {{log: {{type: file, path: {target}}}}}")
            running.process.send_signal(signal.SIGHUP)
            wait(lambda: said(connection, event) == 200)
            wait(lambda: target.exists() and target.read_bytes().count(b"\n") == 1)
            file.write_text("collect: {lineage: {validate: wild}}")
            running.process.send_signal(signal.SIGHUP)
            wait(lambda: "reload_failed" in running.state.with_suffix(".log").read_text())
            assert said(connection, event) == 200
            file.write_text("forward: {}")
            running.process.send_signal(signal.SIGHUP)
            wait(lambda: said(connection, event) == 400)
            size = target.stat().st_size
            assert said(connection, RUN) == 200
            assert target.stat().st_size == size
            connection.close()
    finally:
        del os.environ["THENCE_CONFIG"]


def said(connection: http.client.HTTPConnection, event: object) -> int:
    connection.request("POST", "/api/v1/lineage", json.dumps(event))
    answer = connection.getresponse()
    answer.read()
    return answer.status


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nothing_is_acknowledged_when_the_state_directory_is_gone(tmp_path: Path) -> None:
    with door(tmp_path / "state") as orphan:
        assert orphan.post(RUN)[0] == 200
        shutil.rmtree(tmp_path / "state")
        assert orphan.post(RUN)[0] == 503
        assert orphan.ask("GET", "/readyz")[0] == 503


def test_an_event_that_the_journal_can_never_hold_is_refused_and_others_go_on(tmp_path: Path) -> None:
    with door(tmp_path / "state", "journal.lineage.max_bytes=20000") as small:
        assert small.post(RUN | {"producer": "https://x.example/" + "x" * 30_000})[0] == 503
        assert small.post(RUN)[0] == 200

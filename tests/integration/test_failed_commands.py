"""`thence failed` and `thence journal` as people run them, on a state directory that is in use and one that is not."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from uuid import UUID

import pytest

from thence.collect.committer import Committer
from thence.collect.failed import Refusals, letter_of
from thence.collect.lineage import LineageDoor
from thence.collect.validate import Validator
from thence.core.errors import Unavailable
from thence.core.event import Event
from thence.core.ids import IdFactory
from thence.core.tally import Settled
from thence.http.exchange import Request, Response
from thence.journal.letters.store import SqliteDeadLetters
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.journal.view import JournalView
from thence.service.failed import failed_events
from thence.service.settings import Settings
from thence.service.state import StateDirectory

THENCE = (sys.executable, "-m", "thence")
BASE = datetime(2026, 3, 4, tzinfo=UTC)
ids = IdFactory()


def lineage(number: int, *, run_id: str = "01890a5d-ac96-774b-bcce-b302099a8057") -> bytes:
    return json.dumps(
        {
            "eventTime": "2026-03-04T05:06:07Z",
            "producer": f"https://producer-{number % 2}.example",
            "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/definitions/RunEvent",
            "run": {"runId": run_id},
            "job": {"namespace": "shop", "name": f"job-{number}"},
        },
        indent=1,
    ).encode()


def event(number: int, payload: bytes | None = None) -> Event:
    at = BASE + timedelta(hours=number)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    return Event(ids(), at, "lineage", "key", lineage(number) if payload is None else payload, trace)


class State:
    """A state directory, and commands that run on it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(
        self,
        *arguments: str,
        code: int = 0,
        settings: Sequence[str] = (),
        environment: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:
        flags = [part for each in settings for part in ("--set", each)]
        done = subprocess.run(
            [*THENCE, "--state", str(self.path), *flags, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1", **environment},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def data(self, *arguments: str, code: int = 0, **more: Any) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code, **more).stdout)

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.run(*arguments).stdout.splitlines()]

    @contextmanager
    def letters(self) -> Iterator[SqliteDeadLetters]:
        letters = SqliteDeadLetters(self.path / "failed" / "failed.db")
        try:
            yield letters
        finally:
            letters.close()

    @contextmanager
    def journal(self, limits: Limits | None = None) -> Iterator[FileJournal]:
        journal = FileJournal(self.path / "journal" / "lineage", limits)
        try:
            yield journal
        finally:
            journal.close()

    def fail(self, *payloads: bytes) -> list[UUID]:
        """Letters as the collector makes them, though their events may be valid by now."""
        validator = Validator()
        found = []
        with self.letters() as letters:
            for number, payload in enumerate(payloads):
                failed = event(number, payload)
                faults = validator.check(payload).violations
                letters.put([letter_of(failed, faults, failed_at=failed.received_at, remote="10.0.0.9")])
                found.append(failed.id)
        return found

    def left(self) -> dict[UUID, int]:
        with self.letters() as letters:
            return {letter.id: letter.attempts for letter in letters.find()}

    def arrived(self) -> list[tuple[UUID, bytes]]:
        with self.journal() as journal:
            records = journal.cursor("test").read(10_000)
        assert {record.event.kind for record in records} <= {"lineage.run"}, "as the door says it"
        return [(record.event.id, record.event.payload) for record in records]


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path / "state")


BAD = lineage(1, run_id="seven")


# Listing and showing


def test_failed_events_are_listed_by_what_is_known(state: State) -> None:
    good, bad, garbage = state.fail(lineage(0), BAD, b"\x1b[31mno json")
    listed = state.data("failed", "list")
    assert [each["id"] for each in listed] == [str(good), str(bad), str(garbage)]
    assert listed[1]["code"] == "format.uuid"
    assert listed[1]["violations"][0]["path"] == "run/runId"
    assert listed[1]["remote"] == "10.0.0.9"

    def only(*arguments: str) -> list[str]:
        return [each["id"] for each in state.data("failed", "list", *arguments)]

    assert only("--code", "format.uuid") == [str(bad)]
    assert only("--producer", "producer-0") == [str(good)]
    assert only("--since", "2026-03-04T01:00:00Z", "--until", "2026-03-04T02:00") == [str(bad)]
    assert only("--since", "2h") == []
    assert only("--text", "no json") == [str(garbage)]
    assert only("--stage", "forward") == []
    assert only("--limit", "1") == [str(good)]
    shown = state.run("failed", "list", "--limit", "2")
    assert str(bad) in shown.stdout
    assert "2 of 3" in shown.stderr


def test_one_is_shown_whole_and_steers_no_terminal(state: State) -> None:
    bad, garbage = state.fail(BAD, b"\x1b[31mno json")
    shown = state.run("failed", "show", str(bad)).stdout
    assert "run/runId: is not a uuid [format.uuid] seven" in shown
    assert BAD.decode() in shown
    assert "\x1b" not in state.run("failed", "show", str(garbage)).stdout
    assert "\x1b" not in state.run("failed", "list").stdout
    assert state.run("failed", "show", str(garbage), "--raw").stdout == "\x1b[31mno json"
    assert state.data("failed", "show", str(bad))["event"]["run"]["runId"] == "seven"
    assert state.data("failed", "show", str(ids()), code=1)["error"]["code"] == "failed.unknown"
    assert state.data("failed", "show", "7", code=2)["error"]["code"] == "cli.identifier"


def test_nothing_failed_yet_and_nothing_is_made(state: State) -> None:
    assert state.data("failed", "list") == []
    assert state.data("failed", "replay") == {"accepted": 0, "refused": 0}
    assert state.data("failed", "purge", "--yes") == {"purged": 0}
    assert not state.path.exists()


def test_a_time_that_is_none_is_refused(state: State) -> None:
    assert state.data("failed", "list", "--since", "soon", code=2)["error"]["code"] == "cli.time"


# Throwing away


def test_purging_asks_or_wants_to_be_told(state: State) -> None:
    good, _ = state.fail(lineage(0), BAD)
    assert state.data("failed", "purge", code=2)["error"]["code"] == "cli.confirm"
    assert len(state.left()) == 2
    assert state.data("failed", "purge", "--code", "format.uuid", "--yes") == {"purged": 1}
    assert list(state.left()) == [good]


@pytest.mark.parametrize(("answer", "left"), [("n", 1), ("y", 0)])
def test_purging_asks_on_a_terminal(state: State, answer: str, left: int) -> None:
    state.fail(BAD)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*THENCE, "--state", str(state.path), "failed", "purge"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    os.write(ours, answer.encode() + b"\n")
    _, said = process.communicate(timeout=60)
    os.close(ours)
    assert b"for good?" in said
    assert len(state.left()) == left


# Replaying into the journal


def test_without_a_collector_what_is_valid_now_goes_into_the_journal(state: State) -> None:
    good, bad, other = state.fail(lineage(0), BAD, lineage(2))
    done = state.run("failed", "replay", code=1)
    assert "2 accepted, 1 refused" in done.stderr
    assert str(bad) in done.stdout
    assert state.left() == {bad: 2}
    assert state.arrived() == [(good, lineage(0)), (other, lineage(2))]
    state.run("failed", "replay", code=1)
    assert state.left() == {bad: 3}
    assert len(state.arrived()) == 2


def test_the_level_of_the_settings_decides(state: State) -> None:
    (found,) = state.fail(lineage(0).replace(b'"producer"', b'"product"'))
    state.run("failed", "replay", code=1)
    state.run("failed", "replay", settings=["collect.lineage.validate=lenient"])
    assert state.left() == {}
    assert [each for each, _ in state.arrived()] == [found]


def test_a_dry_run_changes_nothing(state: State) -> None:
    good, bad = state.fail(lineage(0), BAD)
    assert state.data("failed", "replay", "--dry-run", code=1) == {"accepted": 1, "refused": 1}
    assert state.left() == {good: 1, bad: 1}
    assert not (state.path / "journal").exists()


def test_filters_and_limit_choose_what_is_replayed(state: State) -> None:
    found = state.fail(*map(lineage, range(250)))
    assert state.data("failed", "replay", "--limit", "120") == {"accepted": 120, "refused": 0}
    assert list(state.left()) == found[120:][:100]
    assert state.data("failed", "replay", "--producer", "producer-1") == {"accepted": 65, "refused": 0}
    assert state.data("failed", "replay", "--stage", "forward") == {"accepted": 0, "refused": 0}
    assert state.data("failed", "replay", "--stage", "all") == {"accepted": 65, "refused": 0}
    assert state.left() == {}
    assert {each for each, _ in state.arrived()} == set(found)


def test_what_the_real_door_refuses_is_kept_before_the_answer_and_comes_back(state: State) -> None:
    lenient_only = lineage(1).replace(b'"producer"', b'"product"')

    def posted(body: bytes) -> Request:
        return Request("POST", "/api/v1/lineage", "", {}, "10.0.0.9", event(0).traceparent or "", body)

    with state.letters() as letters, state.journal() as journal:
        committer = Committer(journal)
        committer.start()

        async def run() -> list[int]:
            failed = failed_events(Settings().collect.lineage.failed, state.path, letters)
            door = LineageDoor(committer, Validator(), Refusals(failed))
            statuses = []
            for body in (lineage(0), lenient_only, BAD, lineage(3)):
                answering = door.post(posted(body))
                answer = answering if isinstance(answering, Response) else await answering
                statuses.append(answer.status)
                assert letters.totals().letter_count == statuses.count(400)
            await asyncio.to_thread(failed.close, 60)
            return statuses

        try:
            assert asyncio.run(run()) == [200, 400, 400, 200]
        finally:
            committer.stop()
        first, second = letters.find()
        assert (first.code, second.code) == ("required", "format.uuid")
        assert (first.event.payload, first.remote) == (lenient_only, "10.0.0.9")
    state.run("failed", "replay", code=1, settings=["collect.lineage.validate=lenient"])
    assert state.left() == {second.id: 2}
    arrived = state.arrived()
    assert [body for _, body in arrived] == [lineage(0), lineage(3), lenient_only]
    assert arrived[-1][0] == first.event.id


# Replaying through the door


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    got: ClassVar[list[tuple[str, dict[str, str], bytes]]]
    rule: ClassVar[Callable[[bytes, int], int]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status = type(self).rule(body, len(self.got))
        fault = {"path": "run/runId", "rule": "door.rule", "value": "", "message": "says the door"}
        content = json.dumps(
            {"error": {"code": "x", "violations": [fault]}} if status == 400 else {}
        ).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def door(rule: Callable[[bytes, int], int]) -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    class Fresh(Door):
        got: ClassVar[list[tuple[str, dict[str, str], bytes]]] = []

    Fresh.rule = staticmethod(rule)
    with ThreadingHTTPServer(("127.0.0.1", 0), Fresh) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}", Fresh.got
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running(state: State) -> Iterator[SqliteDeadLetters]:
    """Somebody owns the state directory, its journal and its failed events."""
    with ExitStack() as stack:
        stack.enter_context(StateDirectory(state.path))
        stack.enter_context(state.journal())
        yield stack.enter_context(state.letters())


def test_a_running_collector_is_given_them_through_its_door(state: State) -> None:
    good, bad, other = state.fail(lineage(0), BAD, lineage(2))
    with running(state), door(lambda body, _: 400 if body == BAD else 200) as (address, got):
        done = state.run("failed", "replay", code=1, settings=[f"collect.listen={address}"])
        assert "2 accepted, 1 refused" in done.stderr
        assert "door.rule" in done.stdout
    assert [path for path, _, _ in got] == ["/api/v1/lineage"] * 3
    assert [body for _, _, body in got] == [lineage(0), BAD, lineage(2)], "the bytes that came, in order"
    assert [headers["thence-event-id"] for _, headers, _ in got] == [str(good), str(bad), str(other)]
    assert got[0][1]["traceparent"].startswith("00-0af7651916cd43dd8448eb211c80319c")
    assert state.left() == {bad: 2}
    listed = state.data("failed", "list")
    assert (listed[0]["code"], listed[0]["reason"]) == ("door.rule", "run/runId says the door")


def test_a_collector_that_stops_taking_keeps_the_rest_failed(state: State) -> None:
    found = state.fail(*map(lineage, range(5)))
    with running(state), door(lambda _, count: 200 if count <= 3 else 503) as (address, _):
        done = state.run("failed", "replay", code=75, settings=[f"collect.listen={address}"])
    assert "3 accepted" in done.stderr
    assert "failed.replay_unavailable" in done.stderr
    assert list(state.left()) == found[3:]


def test_nobody_answers_at_the_address(state: State) -> None:
    (found,) = state.fail(lineage(0))
    with running(state):
        state.run("failed", "replay", code=75, settings=["collect.listen=127.0.0.1:1"])
        failure = state.run("failed", "replay", code=2, settings=["collect.listen=127.0.0.1:0"])
        assert "--url" in failure.stderr
    assert state.left() == {found: 1}


def test_a_key_is_sent_and_a_wrong_one_ends_it(state: State) -> None:
    state.fail(lineage(0), lineage(1))
    with door(lambda _, count: 401 if count == 1 else 200) as (address, got):
        url = ("--url", f"http://{address}/prefix/")
        refused = state.run("failed", "replay", *url, code=1)
        assert "failed.replay_not_allowed" in refused.stderr
        assert len(state.left()) == 2
        state.run("failed", "replay", *url, environment={"OPENLINEAGE_API_KEY": "secret"})
    assert state.left() == {}
    assert got[1][0] == "/prefix/api/v1/lineage"
    assert got[1][1]["authorization"] == "Bearer secret"


def test_a_death_between_acceptance_and_removal_sends_twice_with_the_same_id(state: State) -> None:
    (found,) = state.fail(lineage(0))
    program = """
import os, sys
from thence.journal.letters.store import SqliteDeadLetters
SqliteDeadLetters.remove = lambda *_: os._exit(9)
sys.argv = ["thence", *sys.argv[1:]]
from thence.cli.main import main
main()
"""
    command = [sys.executable, "-c", program, "--state", str(state.path), "failed", "replay"]
    assert subprocess.run(command, timeout=60).returncode == 9
    assert state.left() == {found: 1}
    state.run("failed", "replay")
    assert state.left() == {}
    assert [each for each, _ in state.arrived()] == [found, found]


def test_letters_that_come_while_replaying_wait_for_the_next_time(state: State) -> None:
    """A door that does not know the ids makes a new letter for each refusal; the replay still ends."""
    state.fail(BAD, BAD)

    def refuse(_: bytes, count: int) -> int:
        failed = event(count, BAD)
        with ExitStack() as stack:
            letters = SqliteDeadLetters.visit(state.path / "failed" / "failed.db")
            assert letters is not None
            stack.callback(letters.close)
            letters.put([letter_of(failed, (), failed_at=failed.received_at)])
        return 400

    with door(refuse) as (address, got):
        state.run("failed", "replay", "--url", f"http://{address}", code=1)
    assert len(got) == 2
    assert len(state.left()) == 4


# The journal


@contextmanager
def filled(state: State) -> Iterator[FileJournal]:
    """Forty events in several partitions, owned by this process."""
    with state.journal(Limits(partition_bytes=4000)) as journal:
        journal.cursor("marquez").settle(Settled())
        for number in range(40):
            journal.append([event(number)])
        journal.cursor("marquez").settle(Settled(delivered=10, parked=2, filtered=1))
        yield journal


def test_info_shows_a_journal_in_use(state: State) -> None:
    with filled(state) as journal:
        shown = state.data("journal", "info", "--check")
        partitions = [(each["first"], each["last"], each["size_bytes"]) for each in shown["partitions"]]
        assert partitions == [(each.first, each.last, each.size_bytes) for each in journal.partitions]
        assert len(partitions) > 3
        assert [each["damaged_count"] for each in shown["partitions"]] == [0] * len(partitions)
        (cursor,) = shown["cursors"]
        assert cursor["name"] == "marquez"
        assert cursor["tally"]["waiting"] == 27
        assert cursor["tally"]["settled"]["parked"] == 2
        assert cursor["oldest_waiting_at"] == "2026-03-04T13:00:00Z"
        text = state.run("journal", "info").stdout
        assert "27 waiting" in text
        assert "newest position 40" in text


def test_info_says_what_is_damaged(state: State) -> None:
    with filled(state) as journal:
        path = journal.partitions[1].path
        lost = journal.partitions[1].first + 1
        content = bytearray(path.read_bytes())
        content[content.index(b"job-%d" % (lost - 1))] ^= 1
        path.write_bytes(content)
        shown = state.data("journal", "info", "--check", code=3)
        assert [each["damaged_count"] for each in shown["partitions"]][:3] == [0, 1, 0]
        found = [each["position"] for each in state.lines("journal", "export")]
        assert found == [number for number in range(1, 41) if number != lost]


def test_tail_prints_the_newest(state: State) -> None:
    with filled(state):
        found = state.lines("--json", "journal", "tail", "-n", "12")
        assert [each["position"] for each in found] == list(range(29, 41))
        assert found[-1]["event"]["job"]["name"] == "job-39"
        assert state.run("journal", "tail", "-n", "0").stdout == ""
        (line,) = state.run("journal", "tail", "-n", "1").stdout.splitlines()
        assert line.startswith("40  2026-03-05T15:00:00")
        assert line.endswith("…")
        assert "job-39" in state.run("journal", "tail", "-n", "1", "--full").stdout


def test_tail_follows_across_partitions(state: State) -> None:
    with filled(state) as journal:
        command = [*THENCE, "--state", str(state.path), "--json", "journal", "tail", "-n", "1", "-f"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            first = json.loads(process.stdout.readline())
            assert first["position"] == 40
            found = []
            for number in range(40, 80):
                journal.append([event(number)])
                if number % 10 == 0:
                    found.append(json.loads(process.stdout.readline())["position"])
            while len(found) < 40:
                found.append(json.loads(process.stdout.readline())["position"])
            assert found == list(range(41, 81))
        finally:
            watchdog.cancel()
            process.kill()
            process.wait()
            process.stdout.close()


def test_grep_finds_by_expression_pointer_time_and_kind(state: State) -> None:
    with filled(state):

        def found(*arguments: str) -> list[int]:
            return [each["position"] for each in state.lines("--json", "journal", "grep", *arguments)]

        assert found("job-3[0-2]") == [31, 32, 33]
        assert found("JOB-7") == []
        assert found("-i", 'JOB-7"') == [8]
        assert found("--at", "/job/name=job-5") == [6]
        assert found("--at", "/job/name=job-5", "--at", "/job/namespace=other") == []
        assert found("job-1", "--at", "/producer=https://producer-0.example")[:2] == [11, 13]
        assert found("job", "--since", "2026-03-05T14:00:00Z") == [39, 40]
        assert found("job", "--until", "2026-03-04T02:00:00Z") == [1, 2]
        assert found("job", "--kind", "other") == []
        for wrong in ((), ("(",), ("--at", "job=1")):
            state.run("journal", "grep", *wrong, code=2)


def test_export_gives_everything_back(state: State) -> None:
    with filled(state):
        found = state.lines("journal", "export", "--from", "5", "--to", "30")
        assert [each["position"] for each in found] == list(range(5, 31))
        assert found[0]["event"] == json.loads(lineage(4))
        assert found[0]["source"] == "key"
        raw = state.run("journal", "export", "--raw").stdout.splitlines()
        assert [json.loads(line)["job"]["name"] for line in raw] == [f"job-{number}" for number in range(40)]


def test_a_reader_of_an_export_may_go_away(state: State) -> None:
    with filled(state):
        command = f"{sys.executable} -m thence --state {state.path} journal export | head -n 1"
        done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, timeout=60)
        assert b"Traceback" not in done.stderr
        assert done.stdout.count(b"\n") == 1


def test_looking_while_the_journal_turns_over_shows_only_what_is_true(state: State) -> None:
    """Partitions come and go under the reader's hands."""
    with state.journal(Limits(partition_bytes=3000, max_bytes=12_000)) as journal:
        journal.cursor("slow")
        stop = threading.Event()
        view = JournalView(journal.directory)
        appended = 0

        def work() -> None:
            nonlocal appended
            while not stop.is_set():
                journal.append([event(appended, b"%d " % (appended + 1) * 20)])
                appended += 1

        writer = threading.Thread(target=work)
        writer.start()
        try:
            deadline = time.monotonic() + 1
            looks = 0
            while time.monotonic() < deadline or looks < 20:
                looks += 1
                records = list(view.records())
                positions = [record.position for record in records]
                assert positions == sorted(set(positions))
                assert all(int(each.event.payload.split()[0]) == each.position for each in records)
                for shown in view.partitions():
                    assert shown.last >= shown.first - 1
                last = max((each.last for each in view.partitions()), default=0)
                assert all(each.tally.holds for each in view.cursors(last))
                view.newest(5)
        finally:
            stop.set()
            writer.join()
        assert journal.counters.expired_events > 0, "partitions did go meanwhile"


def test_what_a_failed_append_left_behind_is_not_shown(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    with state.journal() as journal:
        journal.append([event(0)])
        real = os.fdatasync

        def fail(_: int) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "fdatasync", fail)
        with pytest.raises(Unavailable):
            journal.append([event(1, b"never acknowledged")] * 3)
        monkeypatch.setattr(os, "fdatasync", real)
        journal.append([event(2)])
        view = JournalView(journal.directory)
        assert [(each.position, each.event.payload) for each in view.records()] == [
            (1, lineage(0)),
            (2, lineage(2)),
        ]
        assert [each.position for each in view.newest(5)] == [1, 2]
        assert [(each.first, each.last, each.damaged_count) for each in view.partitions(check=True)] == [
            (1, 1, 0),
            (2, 2, 0),
        ]


def test_a_cursor_is_set_back_while_nobody_uses_it(state: State) -> None:
    with filled(state):
        refused = state.data("journal", "replay", "marquez", "--from", "5", code=75)
        assert refused["error"]["code"] == "journal.in_use"
    assert state.data("journal", "replay", "marquez", "--from", "5") == {"cursor": "marquez", "again": 9}
    with state.journal() as journal:
        cursor = journal.cursor("marquez")
        assert cursor.read(1)[0].position == 5
        assert cursor.tally().holds
        assert cursor.tally().settled == Settled(delivered=1, parked=2, filtered=1)
    assert state.data("journal", "replay", "marquez", "--from", "30")["again"] == 0, "never forward"
    assert state.data("journal", "replay", "marquez", "--since", "2026-03-04T02:00:00Z")["again"] == 2
    with state.journal() as journal:
        assert journal.cursor("marquez").read(1)[0].position == 3
    assert (
        state.data("journal", "replay", "other", "--from", "1", code=1)["error"]["code"]
        == "journal.cursor_unknown"
    )
    state.run("journal", "replay", "marquez", code=2)


def test_gc_gives_back_what_is_done_while_nobody_uses_it(state: State) -> None:
    with filled(state) as journal:
        assert state.data("journal", "gc", code=75)["error"]["code"] == "journal.in_use"
        before = journal.size_bytes
        journal.cursor("marquez").settle(Settled(delivered=20))
    freed = state.data("journal", "gc")
    assert freed["freed_bytes"] > 4000
    assert freed["expired_events"] == 0
    on_disk = sum(path.stat().st_size for path in (state.path / "journal/lineage").glob("partition-*"))
    assert on_disk == before - freed["freed_bytes"]


def test_no_journal_is_said_and_not_made(state: State) -> None:
    for command in (["info"], ["tail"], ["grep", "x"], ["export"], ["gc"], ["replay", "c", "--from", "1"]):
        assert "journal.missing" in state.run("journal", *command, code=1).stderr
    assert "Known: lineage" in state.run("journal", "info", "--lane", "../lineage", code=2).stderr
    assert not state.path.exists()

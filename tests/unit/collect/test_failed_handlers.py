"""The handlers that come with thence, and how those of users are found."""

from __future__ import annotations

import base64
import json
import logging
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from thence.collect.handlers import named
from thence.collect.handlers.file import FileHandler
from thence.collect.handlers.http import HttpHandler
from thence.collect.handlers.log import LogHandler
from thence.core.errors import ConfigError, Unavailable, Violation
from thence.core.ports import DeadLetter
from thence.testing.contracts.deadletters import letter


def with_payload(number: int, payload: bytes) -> DeadLetter:
    plain = letter(
        number, remote="1.2.3.4", key_id="k", violations=(Violation("a/b", "type", "7", "is bad"),)
    )
    return msgspec.structs.replace(plain, event=msgspec.structs.replace(plain.event, payload=payload))


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def ids(path: Path) -> list[int]:
    return [int(line["id"].replace("-", ""), 16) & 0xFFFF for line in lines(path)]


# file


def test_a_line_says_everything_and_is_one_line(tmp_path: Path) -> None:
    file = FileHandler(tmp_path / "deep" / "failed.ndjson")
    odd = [
        b'{"a": 1}',
        b'{\n  "a":\r\n  1}',
        b'{"big": ' + b"9" * 5000 + b"}",
        b'{"a": 1, "a": 2}',
        b"[" * 200 + b"]" * 200,
        b"not json \x1b[31m\n",
        b"\xff\xfe\x00",
        b"",
    ]
    file.handle([with_payload(number, payload) for number, payload in enumerate(odd)])
    file.close()
    raw = (tmp_path / "deep" / "failed.ndjson").read_bytes().splitlines()
    assert len(raw) == len(odd)
    sys.set_int_max_str_digits(6000)
    found = [json.loads(line) for line in raw]
    sys.set_int_max_str_digits(4300)
    assert found[0]["event"] == found[1]["event"] == {"a": 1}
    assert b"9" * 5000 in raw[2]
    assert b'{"a": 1, "a": 2}' in raw[3], "the bytes are those that came"
    assert [line.get("event_text") for line in found[4:6]] == [odd[4].decode(), odd[5].decode()]
    assert base64.b64decode(found[6]["event_base64"]) == odd[6]
    assert found[7]["event_text"] == ""
    first = found[0]
    assert (first["code"], first["reason"], first["stage"]) == ("code", "reason", "stage")
    assert (first["remote"], first["key_id"]) == ("1.2.3.4", "k")
    assert first["failed_at"] == "2024-02-29T23:59:59.999999Z"
    assert first["violations"] == [{"path": "a/b", "rule": "type", "value": "7", "message": "is bad"}]


def test_files_rotate_and_their_number_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "failed.ndjson"
    file = FileHandler(path, max_bytes=2000, max_files=3)
    for number in range(30):
        file.handle([letter(number)])
    file.close()
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["failed.ndjson", "failed.ndjson.1", "failed.ndjson.2"]
    kept = ids(tmp_path / names[2]) + ids(tmp_path / names[1]) + ids(path)
    assert kept == list(range(30 - len(kept), 30)), "the newest are there, in order"
    assert all((tmp_path / name).stat().st_size <= 2000 for name in names)
    assert "failed_file_expired" in [getattr(record, "action", "") for record in caplog.records]


def test_one_file_alone_begins_anew(tmp_path: Path) -> None:
    file = FileHandler(tmp_path / "f", max_bytes=1, max_files=1)
    for number in range(3):
        file.handle([letter(number)])
    assert ids(tmp_path / "f") == [2]
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    file.close()


def test_a_line_that_was_cut_off_is_taken_out(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = FileHandler(path)
    file.handle([letter(1)])
    file.close()
    with path.open("ab") as torn:
        torn.write(b'{"id": "' + b"x" * 100_000)
    file = FileHandler(path)
    file.handle([letter(2)])
    file.close()
    assert ids(path) == [1, 2]


def test_a_file_that_was_moved_away_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = FileHandler(path)
    file.handle([letter(1)])
    path.rename(tmp_path / "elsewhere")
    file.handle([letter(2)])
    file.close()
    assert ids(tmp_path / "elsewhere") == [1]
    assert ids(path) == [2]


def test_a_place_that_cannot_be_written_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("no directory")
    with pytest.raises(Unavailable) as caught:
        FileHandler(tmp_path / "f" / "g")
    assert caught.value.code == "failed.handler_file"


# log


def test_the_log_says_why_and_never_what(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        LogHandler().handle([with_payload(1, b'{"password": "hunter2"}')])
    (record,) = caplog.records
    said = vars(record)
    assert (said["action"], said["code"], said["path"], said["remote"]) == (
        "event_failed",
        "code",
        "a/b",
        "1.2.3.4",
    )
    assert "hunter2" not in str(said)


# http


class Receiver(BaseHTTPRequestHandler):
    status: ClassVar[int] = 200
    got: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def receiving(status: int = 200) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    class Fresh(Receiver):
        got: ClassVar[list[tuple[dict[str, str], bytes]]] = []

    Fresh.status = status
    with HTTPServer(("127.0.0.1", 0), Fresh) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", Fresh.got
        finally:
            server.shutdown()
            thread.join()


def test_letters_are_posted_as_lines() -> None:
    with receiving() as (url, got):
        HttpHandler(url, headers={"authorization": "Bearer x"}).handle([letter(1), letter(2)])
    ((headers, body),) = got
    assert headers["content-type"] == "application/x-ndjson"
    assert headers["authorization"] == "Bearer x"
    assert [json.loads(line)["code"] for line in body.splitlines()] == ["code", "code"]


@pytest.mark.parametrize("status", [302, 400, 500, 503])
def test_whoever_does_not_take_them_has_not_got_them(status: int) -> None:
    with receiving(status) as (url, got), pytest.raises(Unavailable):
        HttpHandler(url).handle([letter(1)])
    assert len(got) == 1, "a redirect is not followed"


def test_nobody_there_and_nobody_who_answers() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(Unavailable):
            HttpHandler(url).handle([letter(1)])
        silent.listen()
        with pytest.raises(Unavailable):
            HttpHandler(url, timeout_seconds=0.1).handle([letter(1)])


def test_only_http_is_an_address() -> None:
    with pytest.raises(ConfigError):
        HttpHandler("file:///etc/passwd")


# users' own


class Own:
    name = "own"

    def __init__(self, channel: str = "general") -> None:
        self.channel = channel

    def handle(self, letters: Sequence[DeadLetter]) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with an entry point, and modules, good and bad."""
    (tmp_path / "own_failed_handlers.py").write_text(
        "class Pager:\n"
        "    name = 'pager'\n"
        "    def __init__(self, channel='general'): self.channel = channel\n"
        "    def handle(self, letters): pass\n"
        "    def close(self): pass\n"
        "class Half:\n    name = 'half'\n"
        "def fails(): raise RuntimeError('no network')\n"
    )
    (tmp_path / "own_failed_broken.py").write_text("import nothing_of_that_name\n")
    info = tmp_path / "own-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[thence.failed_handlers]\npager = own_failed_handlers:Pager\nbroken = own_failed_broken:X\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_a_handler_is_found_by_entry_point_and_by_path() -> None:
    for name in ("pager", "own_failed_handlers:Pager"):
        handler = named.make(name, {"channel": "lineage"})
        assert (handler.name, vars(handler)["channel"]) == ("pager", "lineage")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("pagre", "failed.handler_unknown", "pager"),
        ("fil", "failed.handler_unknown", "file"),
        ("own_failed_handlers:Nothing", "failed.handler_broken", "Nothing"),
        ("own_failed_missing:X", "failed.handler_broken", "own_failed_missing"),
        ("own_failed_handlers:Half", "failed.handler_broken", "no handle and no close"),
        ("own_failed_handlers:fails", "failed.handler_broken", "no network"),
        ("broken", "failed.handler_broken", "nothing_of_that_name"),
    ],
)
def test_what_is_no_handler_is_refused_with_a_reason(name: str, code: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        named.make(name, {})
    assert caught.value.code == code
    assert says in caught.value.message + caught.value.advice

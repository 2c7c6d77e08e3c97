"""What systemd hears of a process, over the socket that it listens on."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from thence.core.errors import Unavailable
from thence.service.lifecycle import Lifecycle
from thence.service.systemd import notify


@contextmanager
def listening(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(name)
        channel.setblocking(False)
        yield channel


def heard(channel: socket.socket) -> list[str]:
    found = []
    try:
        while True:
            found.append(channel.recv(4096).decode())
    except BlockingIOError:
        return found


class Noted:
    name = "noted"

    def __init__(self, channel: socket.socket, *, fails: bool = False) -> None:
        self.channel = channel
        self.fails = fails
        self.before_ready: list[str] = []
        self.before_stopped: list[str] = []

    def start(self) -> str:
        self.before_ready = heard(self.channel)
        if self.fails:
            raise Unavailable("test.fails", "cannot")
        return ""

    def stop(self) -> None:
        self.before_stopped = heard(self.channel)

    def trouble(self) -> str:
        return ""


@pytest.fixture
def channel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with listening(str(tmp_path / "n")) as channel:
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "n"))
        yield channel


def test_it_hears_of_readiness_after_the_last_start_and_of_the_end_before_the_first_stop(
    channel: socket.socket,
) -> None:
    noted = Noted(channel)
    asyncio.run(Lifecycle([noted]).run(until_ready=True))
    assert noted.before_ready == []
    assert noted.before_stopped == ["READY=1", "STOPPING=1"]


def test_what_cannot_start_is_never_called_ready(channel: socket.socket) -> None:
    noted = Noted(channel, fails=True)
    with pytest.raises(Unavailable):
        asyncio.run(Lifecycle([noted]).run())
    assert noted.before_stopped == ["STOPPING=1"]


def test_a_name_of_the_abstract_namespace_is_understood(tmp_path: Path) -> None:
    name = f"thence-{tmp_path}"
    with listening(f"\0{name}") as channel:
        notify("READY=1", {"NOTIFY_SOCKET": f"@{name}"})
        assert heard(channel) == ["READY=1"]


def test_nobody_who_asks_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    notify("READY=1", {})
    assert caplog.records == []


def test_a_socket_that_is_gone_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})
    assert [vars(record)["action"] for record in caplog.records] == ["systemd_unreachable"]

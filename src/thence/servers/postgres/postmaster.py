"""One running `postgres`: our direct child, from its start to its exit.

Direct, not through pg_ctl: we reap it, know at once when it dies, and no other program decides about its signals.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

from thence.servers.postgres.cluster import Tools
from thence.servers.postgres.logfile import LogFile
from thence.servers.postgres.port import HOST

SETTINGS = (
    f"listen_addresses={HOST}",
    "unix_socket_directories=",
    "fsync=on",
    "full_page_writes=on",
    "logging_collector=off",
    "log_destination=stderr",
)
PROBE_SECONDS = 2.0
STATUS_LINE = 8


class Postmaster:
    """Started by its construction."""

    def __init__(self, tools: Tools, port: int, log: LogFile) -> None:
        self._port = port
        self._log = log
        self._log_from = log.size()
        settings = [word for option in (*SETTINGS, f"port={port}") for word in ("-c", option)]
        self._data = data = tools.home.data
        with log.appending() as file:
            # The working directory is what the guardian and a later owner know it by, so it has it from the first.
            self._child = tools.account.spawn(
                [tools.binaries.program("postgres"), "-D", str(data), *settings], cwd=data, stdout=file
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; nothing while it lives."""
        return self._child.poll()

    def last_words(self) -> str:
        """The end of what it logged."""
        return self._log.since(self._log_from)

    def answers(self) -> bool:
        """Whether it lives and accepts a connection now, as pg_isready would ask it."""
        return self.exit_code() is None and _says_ready(self._data, self.pid) and accepts(self._port)

    def exited_within(self, seconds: float) -> bool:
        """Wait for its end, without asking again and again where the kernel can tell."""
        if sys.platform == "linux" and self.exit_code() is None:
            _await_exit(self.pid, seconds)
            return self.exit_code() is not None
        try:
            self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def stop(self, seconds: float) -> None:
        """Ask for a fast shutdown, then an immediate one, then kill."""
        for number, share in ((signal.SIGINT, 0.8), (signal.SIGQUIT, 0.2)):
            self._child.send_signal(number)
            if self.exited_within(seconds * share):
                return
        self._child.kill()
        self._child.wait()


def _says_ready(data: Path, pid: int) -> bool:
    """Whether the eighth line of its pid file says so; before, each attempt to connect is a line in the log."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return False
    return len(lines) >= STATUS_LINE and lines[0] == str(pid) and lines[STATUS_LINE - 1].strip() == "ready"


def accepts(port: int) -> bool:
    """Whether a server lets a client begin to log in: it answers an error while it starts or stops."""
    try:
        with socket.create_connection((HOST, port), PROBE_SECONDS) as connection:
            connection.settimeout(PROBE_SECONDS)
            connection.sendall(_startup_message())
            # All of the answer is read: closing with a part unread resets the connection, and the server logs that.
            return connection.recv(4096)[:1] == b"R"
    except OSError:
        return False


def _startup_message() -> bytes:
    protocol_3_0 = 3 << 16
    body = struct.pack("!i", protocol_3_0) + b"user\0postgres\0database\0postgres\0\0"
    return struct.pack("!i", len(body) + 4) + body


def _await_exit(pid: int, seconds: float) -> None:
    if sys.platform == "linux":
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            waiting = select.poll()
            waiting.register(descriptor, select.POLLIN)
            waiting.poll(seconds * 1000)
        finally:
            os.close(descriptor)

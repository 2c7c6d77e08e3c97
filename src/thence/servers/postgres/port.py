"""The port of a server: the one that was given, else that of the last time, else a free one.

Chosen below the range from which the kernel takes the ports of outgoing connections: there, a client that tries to
reconnect to a server that is down can meet itself, and then holds the port.
"""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from thence.core.errors import ConfigError, Unavailable
from thence.disk import durable

HOST = "127.0.0.1"
FIRST, COUNT, TRIES = 20_000, 12_000, 200


def choose(file: Path, given: int | None) -> int:
    """A port that is free now."""
    if given is not None:
        return _given(given)
    remembered = _remembered(file)
    if remembered and is_free(remembered):
        return remembered
    port = _any()
    durable.write(file, f"{port}\n".encode())
    return port


def is_free(port: int) -> bool:
    """Whether a server could listen on it."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
            candidate.listen()
        except OSError:
            return False
    return True


def _given(port: int) -> int:
    if is_free(port):
        return port
    raise ConfigError(
        "postgres.port_taken",
        f"Port {port} on {HOST} is taken by another program, or may not be used.",
        advice=f"Stop that program (ss -ltnp 'sport = :{port}' names it), or give PostgreSQL another port or none.",
    )


def _remembered(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (FileNotFoundError, ValueError):
        return None


def _any() -> int:
    candidates = (FIRST + secrets.randbelow(COUNT) for _ in range(TRIES))
    free = next(filter(is_free, candidates), None)
    if free is None:
        raise Unavailable(
            "postgres.no_port",
            f"None of {TRIES} ports between {FIRST} and {FIRST + COUNT} on {HOST} is free.",
            advice="Give PostgreSQL a port of its own in the settings.",
        )
    return free

"""What every command shares: the options before it, how it reads settings, and how it speaks."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import typer

from thence.core.errors import ConfigError

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Options(msgspec.Struct, frozen=True):
    """The options that stand before the command."""

    file: Path | None = None
    flags: dict[str, str] = {}
    as_json: bool = False


def options_of(context: typer.Context) -> Options:
    """The options given before this command."""
    return context.obj if isinstance(context.obj, Options) else Options()


def assignments(pairs: list[str]) -> dict[str, str]:
    """The KEY=VALUE pairs of `--set`."""
    broken = next((pair for pair in pairs if "=" not in pair), None)
    if broken is not None:
        raise ConfigError(
            "config.assignment",
            f"--set {broken!r} has no value",
            advice="Write --set collect.listen=127.0.0.1:9000.",
        )
    return dict(pair.split("=", 1) for pair in pairs)


def say(text: str) -> None:
    """A line for people, beside the data."""
    sys.stderr.write(text + "\n")


def put(text: str) -> None:
    """A line of data."""
    sys.stdout.write(text + "\n")


def put_json(content: object) -> None:
    """Data for machines, as one line of JSON."""
    put(msgspec.json.encode(content, enc_hook=str).decode())


def harmless(text: str) -> str:
    """Text that somebody sent, without characters that would steer a terminal."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)

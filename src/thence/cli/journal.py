"""`thence journal`: what is buffered, who still waits for it, and how to get it out. Looking never disturbs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from thence.cli.context import harmless, options_of, put, put_json, say
from thence.cli.moment import ago, moment
from thence.cli.records import chosen, printer, put_record
from thence.core.errors import ConfigError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from thence.journal.log import FileJournal
    from thence.journal.view import CursorView, JournalView, PartitionView
    from thence.service.settings import LaneSettings, Settings

app = typer.Typer(no_args_is_help=True, help="Look into the journal of received events.")

Lane = Annotated[str, typer.Option(metavar="LANE", help="Which journal.")]
Since = Annotated[str | None, typer.Option(metavar="TIME", help="Only what came since: 2h, or an ISO time.")]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Only what came before: 2h, or an ISO time.")]
Kind = Annotated[str | None, typer.Option(metavar="KIND", help="Only events of this kind.")]
Full = Annotated[bool, typer.Option("--full", help="Print whole events, not their beginnings.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]

_MEGABYTE = 1_000_000


@app.command()
def info(
    context: typer.Context,
    lane: Lane = "lineage",
    check: Annotated[
        bool, typer.Option("--check", help="Read everything, and count what is damaged.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show partitions, cursors and damage. Exit code 3 if something is damaged."""
    from thence.core.clock import SystemClock

    view = _view(context, lane)
    partitions = view.partitions(check=check)
    last = partitions[-1].last if partitions else 0
    cursors = view.cursors(last)
    put_aside = view.damaged_files()
    if as_json or options_of(context).as_json:
        shown = {"directory": view.directory, "first": partitions[0].first if partitions else 1, "last": last}
        put_json({**shown, "partitions": partitions, "cursors": cursors, "put_aside": put_aside})
    else:
        size_bytes = sum(each.size_bytes for each in partitions)
        put(
            f"{view.directory}: {len(partitions)} partitions, {_megabytes(size_bytes)}, newest position {last}"
        )
        now = SystemClock().now()
        for line in (*_partition_lines(partitions, now), *_cursor_lines(cursors, now)):
            put(f"  {line}")
        for name in put_aside:
            put(f"  put aside: damaged/{name}")
    if put_aside or any(each.damaged_count for each in partitions):
        raise typer.Exit(3)


@app.command()
def tail(
    context: typer.Context,
    *,
    count: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=0, help="How many.")] = 10,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as events come.")] = False,
    lane: Lane = "lineage",
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Print the newest events."""
    show = printer(as_json=as_json or options_of(context).as_json, full=full)
    view = _view(context, lane)
    newest = view.newest(max(count, 1))
    for record in newest[len(newest) - count :] if count else []:
        show(record)
    if follow:
        sys.stdout.flush()
        for record in view.follow(newest[-1].position if newest else 0):
            show(record)
            sys.stdout.flush()


@app.command()
def grep(
    context: typer.Context,
    pattern: Annotated[str | None, typer.Argument(metavar="[REGEX]")] = None,
    *,
    at: Annotated[
        list[str] | None,
        typer.Option(metavar="POINTER=VALUE", help="The value at a JSON pointer; may be repeated."),
    ] = None,
    ignore_case: Annotated[
        bool, typer.Option("--ignore-case", "-i", help="Upper case is lower case.")
    ] = False,
    since: Since = None,
    until: Until = None,
    kind: Kind = None,
    lane: Lane = "lineage",
    full: Full = False,
    as_json: AsJson = False,
) -> None:
    """Find events by a regular expression, by values at JSON pointers, or both."""
    from thence.service.search import matcher

    if pattern is None and not at:
        raise ConfigError(
            "cli.no_pattern", "nothing to look for", advice="Give a regular expression, or --at /run/runId=…"
        )
    matches = matcher(pattern, at or [], ignore_case=ignore_case)
    show = printer(as_json=as_json or options_of(context).as_json, full=full)
    found = 0
    for record in chosen(_view(context, lane).records(), since, until, kind):
        if matches(record.event.payload):
            found += 1
            show(record)
    say(f"{found} found")


@app.command()
def export(
    context: typer.Context,
    *,
    first: Annotated[int, typer.Option("--from", metavar="POSITION", min=1, help="The first.")] = 1,
    last: Annotated[int | None, typer.Option("--to", metavar="POSITION", help="The last.")] = None,
    since: Since = None,
    until: Until = None,
    kind: Kind = None,
    raw: Annotated[bool, typer.Option("--raw", help="The events alone, one on a line.")] = False,
    lane: Lane = "lineage",
) -> None:
    """Print events as lines of JSON, with what is known about each."""
    from thence.collect.handlers.readable import one_line

    records = _view(context, lane).records(first, last)
    for record in chosen(records, since, until, kind):
        if raw:
            sys.stdout.buffer.write(one_line(record.event.payload) + b"\n")
        else:
            put_record(record)
    sys.stdout.buffer.flush()


@app.command()
def replay(
    context: typer.Context,
    cursor: Annotated[str, typer.Argument(metavar="CURSOR")],
    *,
    first: Annotated[
        int | None, typer.Option("--from", metavar="POSITION", min=1, help="Begin again at this position.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Begin again at what came since: 2h, or an ISO time.")
    ] = None,
    lane: Lane = "lineage",
    as_json: AsJson = False,
) -> None:
    """Set a cursor back, so that its destination gets events again. Only while no collector runs."""
    if (first is None) == (since is None):
        raise ConfigError("cli.choose_one", "give either --from or --since", advice="Give one of them.")
    view = _view(context, lane)
    if first is None:
        at = moment(since)
        assert at is not None  # noqa: S101 - one of the two was given
        first = view.position_at(at)
    journal = _owned(context, lane)
    try:
        again = journal.rewind(cursor, first)
    finally:
        journal.close()
    if as_json or options_of(context).as_json:
        put_json({"cursor": cursor, "again": again})
    else:
        say(f"{cursor} gets {again} events again when the collector starts")


@app.command()
def gc(context: typer.Context, lane: Lane = "lineage", as_json: AsJson = False) -> None:
    """Give back what is delivered and expire what is too old, as a running collector does by itself."""
    _view(context, lane)
    journal = _owned(context, lane)
    try:
        before = journal.size_bytes
        journal.maintain()
        freed = {
            "freed_bytes": before - journal.size_bytes,
            "expired_events": journal.counters.expired_events,
        }
    finally:
        journal.close()
    if as_json or options_of(context).as_json:
        put_json(freed)
    else:
        say(f"{_megabytes(freed['freed_bytes'])} given back, {freed['expired_events']} events expired")


def _settings(context: typer.Context) -> Settings:
    from thence.service import config

    options = options_of(context)
    return config.load(options.file, dict(options.flags)).settings


def _directory(context: typer.Context, lane: str) -> Path:
    from thence.service.lanes import journal_directory

    settings = _settings(context)
    _lane(settings, lane)
    return journal_directory(settings.state.absolute(), lane)


def _lane(settings: Settings, lane: str) -> LaneSettings:
    known = settings.journal.__struct_fields__
    if lane not in known:
        raise ConfigError("cli.lane", f"there is no lane {lane!r}", advice=f"Known: {', '.join(known)}.")
    found: LaneSettings = getattr(settings.journal, lane)
    return found


def _view(context: typer.Context, lane: str) -> JournalView:
    from thence.journal.view import JournalView

    view = JournalView(_directory(context, lane))
    if not view.exists:
        raise Rejected(
            "journal.missing",
            f"there is no journal in {view.directory}",
            advice="Name the state directory with --state, and the journal with --lane.",
        )
    return view


def _owned(context: typer.Context, lane: str) -> FileJournal:
    from thence.journal.log import FileJournal
    from thence.service.lanes import limits_of

    try:
        return FileJournal(_directory(context, lane), limits_of(_lane(_settings(context), lane)))
    except Unavailable as error:
        if error.code != "journal.owned":
            raise
        raise Unavailable(
            "journal.in_use", error.message, advice="Stop the collector first, and start it again afterwards."
        ) from error


def _partition_lines(partitions: Iterable[PartitionView], now: datetime) -> Iterator[str]:
    for each in partitions:
        span = f"{each.first} to {each.last}" if each.last >= each.first else "empty"
        age = ago((now - each.created_at).total_seconds())
        damaged = f", {each.damaged_count} damaged" if each.damaged_count else ""
        yield f"{each.file}  {span}, {_megabytes(each.size_bytes)}, begun {age} ago{damaged}"


def _cursor_lines(cursors: Iterable[CursorView], now: datetime) -> Iterator[str]:
    for cursor in cursors:
        at = cursor.oldest_waiting_at
        oldest = f", the oldest for {ago((now - at).total_seconds())}" if at is not None else ""
        fates = ", ".join(f"{count} {fate}" for fate, count in asdict(cursor.tally.settled).items())
        yield f"cursor {harmless(cursor.name)}: {cursor.tally.waiting} waiting{oldest}; {fates}"


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / _MEGABYTE:.1f} MB"

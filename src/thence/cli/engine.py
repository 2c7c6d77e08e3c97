"""`thence engine`: Spark, its Java and its jars."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thence.cli.context import options_of, put, put_json, say
from thence.core.errors import ConfigError

if TYPE_CHECKING:
    from thence.service.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Look after Spark, its Java and its jars.")

AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]


@app.command()
def jars(
    context: typer.Context,
    check: Annotated[
        bool, typer.Option("--check", help="Compare every jar with its checksum (the default).")
    ] = False,
    fetch: Annotated[bool, typer.Option("--fetch", help="Fetch what is missing or damaged.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Copy all jars to DIR, for a machine without a network."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check, fetch or export the jars that Spark and the Kafka broker need."""
    if sum((check, fetch, export is not None)) > 1:
        raise ConfigError(
            "cli.choose_one", "--check, --fetch and --export exclude each other", advice="Give one of them."
        )
    as_json = as_json or options_of(context).as_json
    shelf = _engine(context).jars()
    if export is not None:
        paths = shelf.export(export)
        put_json([str(path) for path in paths]) if as_json else say(f"{len(paths)} jars are in {export}.")
        return
    if fetch:
        fetched = shelf.fetch(progress=_progress if sys.stderr.isatty() else None)
        put_json([jar.file_name for jar in fetched]) if as_json else say(f"{len(fetched)} jars fetched.")
    problems = shelf.check()
    if as_json and not fetch:
        put_json([{"jar": each.jar.file_name, "kind": each.kind} for each in problems])
    elif not as_json:
        for each in problems:
            put(f"{each.kind:8} {each.jar.group:6} {each.jar.file_name}")
        say(
            "Fetch them: thence engine jars --fetch"
            if problems
            else "All jars are here and as the lock says."
        )
    if problems:
        raise typer.Exit(3)


@app.command("check")
def check_engine(context: typer.Context, as_json: AsJson = False) -> None:
    """Run a Spark job that writes and reads a Delta table, and print all versions."""
    report = _engine(context).check(_progress if sys.stderr.isatty() else None)
    if as_json or options_of(context).as_json:
        put_json(report)
        return
    for name in ("spark", "delta", "scala", "java", "python", "master"):
        put(f"{name:10} {getattr(report, name)}")
    for executor in report.executors:
        put(f"executor   Python {executor.python} on {executor.platform} ({executor.place})")
    for name, seconds in report.seconds.items():
        put(f"{name:10} {seconds:.1f} s")
    say(f"Wrote {report.row_count} rows to a Delta table and read them back.")


def _engine(context: typer.Context) -> Engine:
    from thence.service import config, logs
    from thence.service.engine import Engine

    options = options_of(context)
    settings = config.load(options.file, dict(options.flags)).settings
    logs.configure(settings.log)
    return Engine(settings)


def _progress(here: int, total: int) -> None:
    sys.stderr.write(f"\rjars: {here / 1e6:.0f} of {total / 1e6:.0f} MB" + ("\n" if here >= total else ""))
    sys.stderr.flush()

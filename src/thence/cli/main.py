"""The `thence` command: options that stand before every command, and the way errors end a process.

Exit codes: 0 done, 1 failed, 2 wrong usage or settings, 3 unhealthy, 75 not now but try again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from thence import __version__
from thence.cli import config, doctor, engine, failed, journal, up
from thence.cli.context import Options, assignments, put, put_json, say
from thence.core.errors import ThenceError

app = typer.Typer(
    name="thence",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Collect events, land them exactly once in tables, and know where every row came from.",
)
app.command("up")(up.up)
app.command("collect")(up.collect)
app.command("doctor")(doctor.doctor)
app.add_typer(config.app, name="config")
app.add_typer(failed.app, name="failed")
app.add_typer(journal.app, name="journal")
app.add_typer(engine.app, name="engine")


def _show_version(wanted: bool) -> None:
    if wanted:
        put(f"thence {__version__}")
        raise typer.Exit


@app.callback()
def before(  # noqa: PLR0917 - typer calls it by name
    context: typer.Context,
    file: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="Read settings from FILE.", show_default="./thence.yaml"
        ),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep everything in DIR.", show_default="./state")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set one setting; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print data as JSON.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Collect events, land them exactly once in tables, and know where every row came from."""
    flags = assignments(set_ or [])
    if state is not None:
        flags["state"] = str(state)
    context.obj = Options(file, flags, as_json)


def main() -> None:
    """Run one command and end the process with its exit code."""
    try:
        app()
    except ThenceError as error:
        if "--json" in sys.argv[1:]:
            put_json({"error": {"code": error.code, "message": error.message, "advice": error.advice}})
        say(f"thence: {error}. {error.advice}".strip())
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output went away, as `| head` does.
        sys.stderr.close()
        sys.exit(0)

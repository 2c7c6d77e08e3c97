"""`thence engine`: Spark, its Java and its jars."""

from __future__ import annotations

import typer

app = typer.Typer(no_args_is_help=True, help="Look after Spark, its Java and its jars.")

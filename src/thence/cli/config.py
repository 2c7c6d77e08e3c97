"""`thence config`: what is set, where it came from, and whether it can work."""

from __future__ import annotations

from typing import Annotated

import typer

from thence.cli.context import options_of, put, put_json, say

app = typer.Typer(no_args_is_help=True, help="Show and check the settings.")


@app.command()
def show(
    context: typer.Context,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each value came from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print data as JSON.")] = False,
) -> None:
    """Print every setting and its value. Secrets are hidden."""
    from thence.service import config

    options = options_of(context)
    found = config.load(options.file, dict(options.flags))
    values = config.shown(found.settings)
    if as_json or options.as_json:
        lines = {
            key: {"value": value, "origin": found.origins.get(key, "default")}
            for key, value in values.items()
        }
        put_json(lines if origin else values)
        return
    for key, value in values.items():
        where = f"  # {found.origins.get(key, 'default')}" if origin else ""
        put(f"{key}: {_as_yaml(value)}{where}")


@app.command()
def check(
    context: typer.Context,
    offline: Annotated[bool, typer.Option("--offline", help="Reach for nothing over the network.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print data as JSON.")] = False,
) -> None:
    """Say everything that is wrong with the settings, and whether what they name can be reached."""
    from thence.service import config
    from thence.service.wire import address_in, unreachable

    options = options_of(context)
    found = config.examine(options.file, dict(options.flags))
    dsn = found.settings.store.dsn
    trouble = "" if offline or dsn is None else unreachable(address_in(dsn))
    if as_json or options.as_json:
        problems = [
            {"code": each.code, "message": each.message, "advice": each.advice} for each in found.problems
        ]
        put_json({"problems": problems, "unreachable": [trouble] if trouble else []})
    else:
        for problem in found.problems:
            put(f"{problem}. {problem.advice}")
        if trouble:
            put(f"store.dsn: {trouble}")
    if found.problems:
        raise typer.Exit(2)
    if trouble:
        raise typer.Exit(3)
    say("The settings can work.")


@app.command()
def schema() -> None:
    """Print a JSON Schema of thence.yaml, for editors."""
    from thence.service import config

    put_json(config.schema())


def _as_yaml(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

"""`thence doctor`: is this machine fit, and what to do if not."""

from __future__ import annotations

from typing import Annotated

import typer

from thence.cli.context import options_of, put, put_json

_SIGNS = {"good": "✓", "worth knowing": "·", "bad": "✗"}


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print data as JSON.")] = False,
) -> None:
    """Check what thence needs from this machine: Python, Java, jars, ports, disk, clock, rights."""
    from thence.service import config
    from thence.service import doctor as examination

    options = options_of(context)
    findings = examination.examine(config.load(options.file, dict(options.flags)).settings)
    if as_json or options.as_json:
        put_json(findings)
    else:
        for finding in findings:
            advice = f"\n    {finding.advice}" if finding.advice else ""
            put(f"{_SIGNS[finding.verdict]} {finding.subject:<12} {finding.detail}{advice}")
    if any(finding.verdict == "bad" for finding in findings):
        raise typer.Exit(3)

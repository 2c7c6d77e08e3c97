"""`thence failed`: what could not go on, why, and how it gets another chance."""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from thence.cli.context import harmless, options_of, put, put_json, say
from thence.core.errors import ConfigError, Rejected, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thence.core.ports import DeadLetter
    from thence.journal.letters.queries import Filters
    from thence.journal.letters.store import SqliteDeadLetters
    from thence.service.replay import Way
    from thence.service.settings import Settings

app = typer.Typer(no_args_is_help=True, help="List, show, replay and throw away events that failed.")

Stage = Annotated[str | None, typer.Option(metavar="STAGE", help="Only what failed at this stage.")]
Code = Annotated[str | None, typer.Option(metavar="CODE", help="Only what failed with this code.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what failed since: 2h, or an ISO time.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what failed before: 2h, or an ISO time.")
]
Producer = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Only events whose producer contains this.")
]
Text = Annotated[str | None, typer.Option(metavar="TEXT", help="Only those with this in reason or event.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print data as JSON.")]


@app.command("list")
def list_(
    context: typer.Context,
    *,
    stage: Stage = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    producer: Producer = None,
    text: Text = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List failed events, oldest first."""
    from thence.collect.handlers.readable import summary_of

    filters = _filters(stage, code, since, until, producer, text)
    with _letters(context) as letters:
        found = letters.search(filters, limit=limit) if letters else []
        matching = letters.matching(filters) if letters else 0
        expired = letters.totals().expired_count if letters else 0
    if as_json or options_of(context).as_json:
        put_json([summary_of(letter) for letter in found])
        return
    for letter in found:
        put(_line(letter))
    more = "; more with --limit" if matching > len(found) else ""
    gone = f"; {expired} have expired" if expired else ""
    say(f"{len(found)} of {matching} failed events{more}{gone}")


@app.command()
def show(
    context: typer.Context,
    identifier: Annotated[str, typer.Argument(metavar="ID")],
    raw: Annotated[bool, typer.Option("--raw", help="Print the event alone, as it came.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one failed event with everything that is known about it."""
    from thence.collect.handlers.readable import content_of

    with _letters(context) as letters:
        letter = letters.get(_identifier(identifier)) if letters else None
    if letter is None:
        raise Rejected(
            "failed.unknown", f"there is no failed event {identifier}", advice="thence failed list shows all."
        )
    if raw:
        sys.stdout.buffer.write(letter.event.payload)
    elif as_json or options_of(context).as_json:
        put_json(content_of(letter))
    else:
        _show(letter)


@app.command()
def replay(
    context: typer.Context,
    *,
    stage: Annotated[
        str, typer.Option(metavar="STAGE", help="Only what failed at this stage; `all` for any.")
    ] = "collect",
    code: Code = None,
    since: Since = None,
    until: Until = None,
    producer: Producer = None,
    text: Text = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many.")] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The collector; else as the settings say.")
    ] = None,
    api_key: Annotated[
        str, typer.Option(metavar="KEY", envvar="OPENLINEAGE_API_KEY", help="A key for the collector.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check, change nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check failed events again and let those in that pass. Exit code 1 if some were refused again."""
    from thence.service.replay import Outcome, Replay

    filters = _filters(None if stage == "all" else stage, code, since, until, producer, text)
    as_json = as_json or options_of(context).as_json
    outcome = Outcome()
    try:
        with ExitStack() as stack:
            letters = stack.enter_context(_letters(context))
            if letters is not None and letters.matching(filters):
                way = _way(stack, _settings(context), url, api_key, is_dry=dry_run)
                run = Replay(letters, way, is_dry=dry_run)
                outcome = run.outcome
                for answer in run.run(filters, limit):
                    if answer.code and not as_json:
                        put(f"{answer.letter.id}  refused  {answer.code}  {harmless(answer.reason)}")
    finally:
        # Also after an error: what was done is done.
        if as_json:
            put_json(outcome)
        else:
            say(f"{outcome.accepted} accepted, {outcome.refused} refused" + " (dry run)" * dry_run)
    if outcome.refused:
        raise typer.Exit(1)


@app.command()
def purge(
    context: typer.Context,
    *,
    stage: Stage = None,
    code: Code = None,
    since: Since = None,
    until: Until = None,
    producer: Producer = None,
    text: Text = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Throw failed events away, for good."""
    filters = _filters(stage, code, since, until, producer, text)
    count = 0
    with _letters(context) as letters:
        if letters is not None and (matching := letters.matching(filters)):
            _confirm(matching, yes=yes)
            count = letters.purge(filters)
    if as_json or options_of(context).as_json:
        put_json({"purged": count})
    else:
        say(f"{count} failed events thrown away")


def _confirm(count: int, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            "cli.confirm", f"{count} failed events would be thrown away", advice="Add --yes if that is meant."
        )
    typer.confirm(f"Throw {count} failed events away, for good?", abort=True, err=True)


def _settings(context: typer.Context) -> Settings:
    from thence.service import config

    options = options_of(context)
    return config.load(options.file, dict(options.flags)).settings


@contextmanager
def _letters(context: typer.Context) -> Iterator[SqliteDeadLetters | None]:
    """The failed events of the state directory; None when there never were any."""
    from thence.journal.letters.store import SqliteDeadLetters
    from thence.service.lanes import letter_limits_of, letters_path

    settings = _settings(context)
    limits = letter_limits_of(settings.collect.lineage.failed.journal)
    letters = SqliteDeadLetters.visit(letters_path(settings.state), limits)
    try:
        yield letters
    finally:
        if letters is not None:
            letters.close()


def _way(stack: ExitStack, settings: Settings, url: str | None, api_key: str, *, is_dry: bool) -> Way:
    """Through the door when somebody owns the state directory, else straight into the journal."""
    from thence.journal.log import FileJournal
    from thence.service.lanes import journal_directory, limits_of, validator_of
    from thence.service.replay import Direct, Door
    from thence.service.state import StateDirectory

    if is_dry:
        return Direct(validator_of(settings.collect.lineage), None)
    if url is None:
        try:
            state = stack.enter_context(StateDirectory(settings.state))
        except Unavailable as error:
            if error.code != "state.owned":
                raise
        else:
            directory = journal_directory(state.path)
            journal = FileJournal(directory, limits_of(settings.journal.lineage))
            stack.callback(journal.close)
            return Direct(validator_of(settings.collect.lineage), journal)
    door = Door(url or _address(settings), api_key=api_key)
    stack.callback(door.close)
    return door


def _address(settings: Settings) -> str:
    listen = settings.collect.listen
    if not listen.port:
        raise ConfigError(
            "failed.replay_port",
            "the collector listens on any free port, so its address is not in the settings",
            advice="Say where it is: --url http://127.0.0.1:PORT.",
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - compared, not bound
    return f"http://[{host}]:{listen.port}" if ":" in host else f"http://{host}:{listen.port}"


def _filters(  # noqa: PLR0917 - in the order of the options
    stage: str | None,
    code: str | None,
    since: str | None,
    until: str | None,
    producer: str | None,
    text: str | None,
) -> Filters:
    from thence.cli.moment import moment
    from thence.journal.letters.queries import Filters

    return Filters(stage, code, moment(since), moment(until), producer, text)


def _identifier(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ConfigError(
            "cli.identifier", f"{text!r} is no id", advice="Take one from thence failed list."
        ) from None


def _line(letter: DeadLetter) -> str:
    at = f"{letter.failed_at:%Y-%m-%dT%H:%M:%SZ}"
    reason = harmless(letter.reason)
    return f"{letter.id}  {at}  {letter.stage}  {letter.code}  {letter.attempts}x  {reason}"


def _show(letter: DeadLetter) -> None:
    event = letter.event
    rows = {
        "id": letter.id,
        "failed": letter.failed_at.isoformat(),
        "stage": letter.stage,
        "code": letter.code,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "received": event.received_at.isoformat(),
        "from": " ".join(filter(None, (letter.remote, letter.key_id, event.source))),
        "trace": event.traceparent or "",
    }
    for name, value in rows.items():
        put(f"{name:9} {harmless(str(value))}")
    for fault in letter.violations:
        line = f"fault     {fault.path or '/'}: {fault.message} [{fault.rule}] {fault.value}"
        put(harmless(line.rstrip()))
    put(f"event     {len(event.payload)} bytes")
    put(harmless(event.payload.decode("utf-8", "backslashreplace")))

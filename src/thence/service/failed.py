"""Puts the failed-event handlers together that the settings name."""

from __future__ import annotations

from pathlib import Path

from thence.collect.failed import FailedEventHandler, FailedEvents
from thence.collect.handlers import named
from thence.collect.handlers.file import FileHandler
from thence.collect.handlers.http import HttpHandler
from thence.collect.handlers.log import LogHandler
from thence.collect.handlers.store import JournalHandler
from thence.core.errors import ConfigError
from thence.core.ports import DeadLetters
from thence.service.settings import FailedHttpSettings, FailedSettings

DURABLE = ("journal", "file")


def failed_events(settings: FailedSettings, state: Path, letters: DeadLetters) -> FailedEvents:
    """The dispatcher with all its handlers. `letters` is what the handler `journal` keeps events in."""
    handlers = [(name, _handler(name, settings, state, letters)) for name in settings.names]
    return FailedEvents(
        durable=[handler for name, handler in handlers if name in DURABLE],
        others=[handler for name, handler in handlers if name not in DURABLE],
        answer_within_seconds=settings.answer_within_seconds,
    )


def _handler(name: str, settings: FailedSettings, state: Path, letters: DeadLetters) -> FailedEventHandler:
    match name:
        case "journal":
            return JournalHandler(letters)
        case "file":
            path = settings.file.path or state / "failed" / "failed.ndjson"
            return FileHandler(
                path, max_bytes=settings.file.max_bytes.size_bytes, max_files=settings.file.max_files
            )
        case "log":
            return LogHandler()
        case "http":
            return _http(settings.http)
    return named.make(name, settings.options.get(name, {}))


def _http(settings: FailedHttpSettings) -> HttpHandler:
    if settings.url is None:
        raise ConfigError(
            "failed.handler_url",
            "the failed-event handler 'http' has no address",
            advice="Set collect.lineage.failed.http.url, or take http out of collect.lineage.failed.to.",
        )
    secret = settings.authorization
    headers = {"authorization": secret.reveal()} if secret is not None else {}
    return HttpHandler(settings.url, timeout_seconds=settings.timeout_seconds, headers=headers)

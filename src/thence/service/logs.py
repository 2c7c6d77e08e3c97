"""Logs: one JSON object a line when nobody looks, readable lines on a terminal.

Every record carries an `action` from the list in docs/reference/logs.md, so that machines need not read sentences.
Payloads and secrets are never logged. The trace id of the request under way is added by itself.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

import msgspec

from thence.http.trace import trace_id
from thence.service.settings import LogSettings

_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def configure(settings: LogSettings, stream: TextIO | None = None, *, is_watched: bool = False) -> None:
    """Send all logs of this process to standard error in the chosen format.

    Where somebody watches a checklist that says the same, text at level `info` is left to warnings.
    """
    stream = stream or sys.stderr
    as_text = settings.format == "text" or (settings.format == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(TextFormatter() if as_text else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    quiet = is_watched and as_text and settings.level == "info"
    root.setLevel("WARNING" if quiet else settings.level.upper())
    logging.getLogger("py4j").setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)


class JsonFormatter(logging.Formatter):
    """One JSON object for each record."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record."""
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class TextFormatter(logging.Formatter):
    """A line that a person reads."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for a record."""
        at = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        fields = " ".join(f"{name}={value}" for name, value in _fields(record).items())
        line = f"{at} {record.levelname.lower():7} {record.getMessage()}  {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {name: value for name, value in vars(record).items() if name not in _OWN}
    if trace := trace_id.get():
        fields["trace_id"] = trace
    return fields

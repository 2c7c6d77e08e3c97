"""Every error answers one question for the operator: what now?

* ThenceError
  - ConfigError        what you wrote cannot work: correct it, nothing was started      (exit 2)
  - InvalidEvent       an event breaks the specification: kept by the failed-event handler
  - Rejected           definite: it did not happen and never will as it stands          (parked)
  - Unavailable        definite: it did not happen, later it may                        (retried, exit 75)
    - Unhealthy        something that should run does not                               (exit 3)
  - OutcomeUnknown     it may have happened: look before doing it again
  - InvariantBroken    a bug: stop, keep the data

The message says what happened, with the values. `advice` says what to do. `code` is stable and is explained
in docs/errors.md. Errors of libraries are translated into these where a package meets the library.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec


class ThenceError(Exception):
    """Root of all errors that thence raises on purpose."""

    exit_code: ClassVar[int] = 1

    def __init__(self, code: str, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions with keyword-only arguments do not travel between processes without this.
        return (_rebuild, (type(self), self.code, self.message, self.advice))


class ConfigError(ThenceError):
    """What the operator wrote cannot work; nothing was started."""

    exit_code = 2


class Violation(msgspec.Struct, frozen=True):
    """One broken rule of an event: where, which rule, what stood there, and a sentence for people."""

    path: str
    rule: str
    value: str
    message: str


class InvalidEvent(ThenceError):
    """An event breaks its specification."""

    def __init__(
        self, code: str, message: str, *, advice: str = "", violations: tuple[Violation, ...] = ()
    ) -> None:
        super().__init__(code, message, advice=advice)
        self.violations = violations

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_invalid, (self.code, self.message, self.advice, self.violations))


class Rejected(ThenceError):
    """Definite: it did not happen and will not happen as it stands."""


class Unavailable(ThenceError):
    """Definite: it did not happen, but it may succeed later. Order is kept by trying the same thing again."""

    exit_code = 75


class Unhealthy(Unavailable):
    """Something that should run does not, or not well."""

    exit_code = 3


class OutcomeUnknown(ThenceError):
    """It may have happened. Whoever catches this looks before trying again."""


class InvariantBroken(ThenceError):
    """A promise inside thence does not hold. The process stops and the data stays."""


def _rebuild(kind: type[ThenceError], code: str, message: str, advice: str) -> ThenceError:
    return kind(code, message, advice=advice)


def _rebuild_invalid(code: str, message: str, advice: str, violations: tuple[Violation, ...]) -> InvalidEvent:
    return InvalidEvent(code, message, advice=advice, violations=violations)

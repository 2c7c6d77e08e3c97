"""Errors say what happened, what to do, and survive a journey between processes."""

from __future__ import annotations

import copy
import inspect
import pickle  # noqa: TID251 - that errors can be pickled is what is tested
import re
import subprocess
import sys

import pytest

from thence.core import errors
from thence.core.errors import (
    ConfigError,
    InvalidEvent,
    InvariantBroken,
    OutcomeUnknown,
    Rejected,
    ThenceError,
    Unavailable,
    Violation,
)

KINDS = [ThenceError, ConfigError, InvalidEvent, Rejected, Unavailable, OutcomeUnknown, InvariantBroken]
VIOLATIONS = (
    Violation("/run/runId", "format", "'x'", "is no uuid"),
    Violation("/job", "required", "", "is missing"),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "travel", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_errors_travel(kind: type[ThenceError], travel: object) -> None:
    error = kind("a.code", "3 of 4 went wrong", advice="Look.")
    assert callable(travel)
    arrived = travel(error)
    assert type(arrived) is kind
    assert (arrived.code, arrived.message, arrived.advice) == ("a.code", "3 of 4 went wrong", "Look.")
    assert str(arrived) == str(error) == "3 of 4 went wrong [a.code]"


def test_violations_travel_along() -> None:
    error = InvalidEvent("event.invalid", "2 rules are broken", advice="Fix it.", violations=VIOLATIONS)
    arrived = pickle.loads(pickle.dumps(error))
    assert arrived.violations == VIOLATIONS
    assert arrived.advice == "Fix it."


def test_errors_travel_to_another_process() -> None:
    code = "import pickle, sys; e = pickle.load(sys.stdin.buffer); print(type(e).__name__, e.violations[0].path, e)"
    error = InvalidEvent("event.invalid", "2 rules are broken", violations=VIOLATIONS)
    answer = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(error), capture_output=True, check=True, timeout=60
    )
    assert answer.stdout.decode().split() == ["InvalidEvent", "/run/runId", *str(error).split()]


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (ThenceError, 1),
        (ConfigError, 2),
        (InvalidEvent, 1),
        (Rejected, 1),
        (Unavailable, 75),
        (OutcomeUnknown, 1),
    ],
)
def test_exit_codes(kind: type[ThenceError], exit_code: int) -> None:
    assert kind.exit_code == exit_code


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Names, order and exit codes stand there as they are; nothing is missing and nothing is made up."""
    assert errors.__doc__ is not None
    drawn = re.findall(r"^( *)[*-] (\w+)(.*)$", errors.__doc__, re.MULTILINE)
    classes = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, ThenceError) and kind.__module__ == errors.__name__
    ]
    in_order = sorted(classes, key=lambda kind: inspect.getsourcelines(kind)[1])
    assert [name for _, name, _ in drawn] == [kind.__name__ for kind in in_order]
    for indent, name, rest in drawn:
        kind = getattr(errors, name)
        assert len(indent) == 2 * (len(kind.__mro__) - len(ThenceError.__mro__))
        said = re.search(r"exit (\d+)", rest)
        assert kind.exit_code == (int(said[1]) if said else 1)


def test_an_error_is_caught_by_its_parent_only() -> None:
    for kind in KINDS[1:]:
        assert kind.__bases__ == (ThenceError,)

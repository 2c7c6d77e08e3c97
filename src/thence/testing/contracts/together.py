"""Calling things at the same time, for the promises about threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from thence.core.errors import ThenceError

Result = TypeVar("Result")


def together(calls: Sequence[Callable[[], Result]]) -> list[Result]:
    """Start all calls at the same moment, each in its own thread; return what they returned, in their order."""
    gate = threading.Barrier(len(calls), timeout=60)

    def pass_gate(call: Callable[[], Result]) -> Result:
        gate.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return [future.result() for future in [threads.submit(pass_gate, call) for call in calls]]


def attempted(call: Callable[[], Result]) -> Callable[[], Result | ThenceError]:
    """The same call, which returns an error of thence instead of raising it."""

    def attempt() -> Result | ThenceError:
        try:
            return call()
        except ThenceError as error:
            return error

    return attempt

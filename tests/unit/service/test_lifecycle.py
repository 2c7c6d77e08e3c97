"""Services start in order, stop in the opposite order, and never stay half-started."""

from __future__ import annotations

import asyncio
import threading

import pytest

from thence.core.errors import Unavailable
from thence.service import lifecycle
from thence.service.lifecycle import Lifecycle


class Noted:
    def __init__(
        self, name: str, notes: list[str], *, fails: bool = False, hangs: threading.Event | None = None
    ) -> None:
        self.name = name
        self.notes = notes
        self.fails = fails
        self.hangs = hangs
        self.sick = ""

    def start(self) -> str:
        self.notes.append(f"start {self.name}")
        if self.fails:
            raise Unavailable("test.fails", "cannot", advice="never mind")
        return f"{self.name} is there"

    def stop(self) -> None:
        if self.hangs:
            self.hangs.wait(30)
        self.notes.append(f"stop {self.name}")

    def trouble(self) -> str:
        return self.sick


def test_order_of_start_and_stop():
    notes: list[str] = []
    phases: list[tuple[str, str]] = []
    both = [Noted("a", notes), Noted("b", notes)]
    asyncio.run(
        Lifecycle(both, listener=lambda each: phases.append((each.name, each.phase))).run(until_ready=True)
    )
    assert notes == ["start a", "start b", "stop b", "stop a"]
    expected = [("a", "starting"), ("a", "ready"), ("b", "starting"), ("b", "ready")]
    assert phases == [*expected, ("b", "stopping"), ("b", "stopped"), ("a", "stopping"), ("a", "stopped")]


def test_one_that_cannot_start_stops_the_others():
    notes: list[str] = []
    three = [Noted("a", notes), Noted("b", notes, fails=True), Noted("c", notes)]
    running = Lifecycle(three)
    with pytest.raises(Unavailable, match="cannot"):
        asyncio.run(running.run())
    assert notes == ["start a", "start b", "stop b", "stop a"]
    assert [each.phase for each in running.statuses] == ["stopped", "failed", "waiting"]


def test_one_that_does_not_stop_in_time_does_not_hold_the_others(monkeypatch):
    monkeypatch.setattr(lifecycle, "STOP_SECONDS", 0.2)
    notes: list[str] = []
    release = threading.Event()

    async def main() -> None:
        await Lifecycle([Noted("a", notes), Noted("b", notes, hangs=release)]).run(until_ready=True)
        assert notes == ["start a", "start b", "stop a"]
        release.set()

    asyncio.run(main())


def test_readiness_asks_each_service():
    async def main() -> None:
        service = Noted("a", [])
        running = Lifecycle([service])
        assert [each.phase for each in await running.examine()] == ["waiting"]
        task = asyncio.create_task(running.run())
        while not running.ready:
            await asyncio.sleep(0.001)
        assert [each.phase for each in await running.examine()] == ["ready"]
        service.sick = "hurts"
        assert [(each.phase, each.detail) for each in await running.examine()] == [("failed", "hurts")]
        running.request_stop()
        await task

    asyncio.run(main())

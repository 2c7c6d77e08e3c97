"""The file backend passes the contract of its port, on a real file system that is full or broken for a while."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from thence.core.clock import Clock
from thence.core.event import Event
from thence.core.ports import Backend
from thence.forward.file import FileBackend
from thence.testing.contracts.backend import BackendContract
from thence.testing.contracts.place import Place
from thence.testing.contracts.samples import event

UNREADABLE = b"{\n}}"


class TestFileBackend(BackendContract):
    def open(self, directory: Path, clock: Clock) -> Backend:
        return FileBackend(directory / "events.ndjson")

    def crash(self, opened: Backend) -> None:
        assert isinstance(opened, FileBackend)
        os.write(opened._file, b'{"a torn li')
        os.close(opened._file)

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        path = place.directory / "events.ndjson"
        return path.read_bytes().split(b"\n")[:-1] if path.exists() else []

    @contextmanager
    def unreachable(self, place: Place[Backend]) -> Iterator[None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        size = (place.directory / "events.ndjson").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, hard))  # so that a line and a half still fit
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    @contextmanager
    def losing_answers(self, place: Place[Backend]) -> Iterator[None]:
        def broken(file: int) -> None:
            raise OSError(errno.EIO, "input/output error")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fdatasync", broken)
            yield

    @pytest.mark.parametrize("before", [0, 1, 3])
    def test_a_refusal_keeps_what_came_before(self, place: Place[Backend], before: int) -> None:
        batch = self.events(1, 5)
        batch[before] = with_payload(batch[before], UNREADABLE)

        async def scenario(backend: Backend) -> None:
            sent = await backend.send(batch)
            assert sent.delivered == before
            assert sent.refusal
            assert self.arrived(place) == self.payloads(1, before)
            assert (await backend.send(batch[before + 1 :])).delivered == 4 - before

        self.run(place, scenario)
        assert self.arrived(place) == [one.payload for one in batch if one.payload != UNREADABLE]

    def test_a_refusal_stands(self, place: Place[Backend]) -> None:
        async def scenario(backend: Backend) -> None:
            for _ in range(2):
                sent = await backend.send([with_payload(self.event(1), UNREADABLE), self.event(2)])
                assert (sent.delivered, bool(sent.refusal)) == (0, True)

        self.run(place, scenario)
        assert self.arrived(place) == []

    def test_an_event_of_several_lines_becomes_one_and_keeps_its_values(self, place: Place[Backend]) -> None:
        written = with_payload(event(1), b'{\r\n  "a": 1.10,\n  "b": 36893488147419103232, "c": "x\\ny"}')

        async def scenario(backend: Backend) -> None:
            assert (await backend.send([written])).delivered == 1

        self.run(place, scenario)
        assert self.arrived(place) == [b'{"a":1.10,"b":36893488147419103232,"c":"x\\ny"}']


def with_payload(event: Event, payload: bytes) -> Event:
    return Event(event.id, event.received_at, event.kind, event.source, payload, event.traceparent)

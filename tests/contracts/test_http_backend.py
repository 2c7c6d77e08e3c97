"""The HTTP backend passes the contract of its port, against a real server behind a proxy that breaks links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.receiver import Receiver
from thence.core.clock import Clock
from thence.core.event import Event
from thence.core.ports import Backend
from thence.forward.http import HttpBackend, HttpTarget
from thence.testing.contracts.backend import BackendContract
from thence.testing.contracts.place import Place
from thence.testing.faults import FaultProxy


class TestHttpBackend(BackendContract):
    batch_path: str | None = None

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        with Receiver() as self.receiver, FaultProxy(self.receiver.address) as self.proxy:
            yield

    def open(self, directory: Path, clock: Clock) -> Backend:
        host, port = self.proxy.address
        url = f"http://{host}:{port}"
        batch_url = url + self.batch_path if self.batch_path else None
        return HttpBackend(HttpTarget(url + "/api/v1/lineage", batch_url))

    def crash(self, opened: Backend) -> None:
        """Its sockets go with the loop."""
        assert isinstance(opened, HttpBackend)
        for connection in opened._client._idle:
            connection.abort()

    def arrived(self, place: Place[Backend]) -> Sequence[bytes]:
        return list(self.receiver.arrived)

    def refuse(self, place: Place[Backend], refused: Event) -> None:
        self.receiver.refused.add(refused.payload)

    def unreachable(self, place: Place[Backend]) -> AbstractContextManager[None]:
        return self.proxy.cut()

    def losing_answers(self, place: Place[Backend]) -> AbstractContextManager[None]:
        return self.proxy.lost_answers()


class TestHttpBatches(TestHttpBackend):
    """With a batch endpoint that stops at the first event which it cannot take."""

    batch_path = "/api/v1/lineage/batch"

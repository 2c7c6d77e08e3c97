"""A log of offsets in memory."""

from __future__ import annotations

from typing import Literal

import msgspec

from thence.core.errors import Rejected
from thence.core.ports import OffsetLog, OffsetRecord
from thence.testing.memory.disk import Disk


class _Stream(msgspec.Struct):
    records: dict[int, OffsetRecord] = {}
    token: int = 0


class MemoryOffsetLog(OffsetLog):
    """An `OffsetLog` whose disk is an object."""

    def __init__(self, disk: Disk | None = None) -> None:
        self._disk = disk or Disk()
        self._streams: dict[str, _Stream] = self._disk.state("offsets", dict)

    def latest(self, app_id: str) -> OffsetRecord | None:
        """The record with the highest version."""
        with self._disk.lock:
            records = self._stream(app_id).records
            return records[max(records)] if records else None

    def completed(self, app_id: str) -> OffsetRecord | None:
        """The completed record with the highest version."""
        with self._disk.lock:
            records = self._stream(app_id).records.values()
            done = (record for record in records if record.state == "completed")
            return max(done, key=lambda record: record.version, default=None)

    def start(self, record: OffsetRecord) -> None:
        """Write a started record."""
        with self._disk.lock:
            self._check_token(record.app_id, record.token)
            latest = self.latest(record.app_id)
            if latest is not None and record.version != latest.version + 1:
                raise Rejected(
                    "offsets.version",
                    f"version {record.version} of {record.app_id} does not follow {latest.version}",
                    advice="Read the latest record again; another process has written.",
                )
            if latest is not None and latest.state == "started":
                raise Rejected(
                    "offsets.unresolved",
                    f"version {latest.version} of {record.app_id} is still started",
                    advice="Look whether its commit happened, and finish it first.",
                )
            offsets = dict(record.offsets)
            self._write(msgspec.structs.replace(record, offsets=offsets, state="started"), record.token)

    def finish(self, app_id: str, version: int, state: Literal["completed", "failed"], *, token: int) -> None:
        """Resolve a started record."""
        with self._disk.lock:
            self._check_token(app_id, token)
            record = self._stream(app_id).records.get(version)
            if record is None:
                raise Rejected("offsets.unknown", f"there is no version {version} of {app_id}")
            if record.state not in {"started", state}:
                raise Rejected(
                    "offsets.resolved",
                    f"version {version} of {app_id} is {record.state} and cannot become {state}",
                    advice="Read the latest record again; another process has looked and decided.",
                )
            self._write(msgspec.structs.replace(record, state=state), token)

    def _check_token(self, app_id: str, token: int) -> None:
        highest = self._stream(app_id).token
        if token < highest:
            raise Rejected(
                "offsets.fenced",
                f"token {token} of {app_id} is older than {highest}",
                advice="The lease was lost: stop, and take the lock anew.",
            )

    def _write(self, record: OffsetRecord, token: int) -> None:
        self._disk.reach()
        stream = self._streams.setdefault(record.app_id, _Stream())
        stream.records[record.version] = record
        stream.token = token

    def _stream(self, app_id: str) -> _Stream:
        return self._streams.get(app_id, _Stream())

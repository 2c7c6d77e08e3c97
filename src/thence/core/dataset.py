"""The three things that OpenLineage names: datasets, jobs and runs of jobs."""

from __future__ import annotations

from uuid import UUID

import msgspec


class Dataset(msgspec.Struct, frozen=True, order=True):
    """A table, topic, file or folder, named as OpenLineage's naming rules say."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Job(msgspec.Struct, frozen=True, order=True):
    """A process that reads and writes datasets."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Run(msgspec.Struct, frozen=True, order=True):
    """One execution of a job."""

    id: UUID
    job: Job

    def __str__(self) -> str:
        return f"{self.job}@{self.id}"

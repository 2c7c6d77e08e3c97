"""What an operator can set, with every default. The names here are the keys of `thence.yaml`.

Each field is documented in docs/reference/settings.md, and a test keeps that true. Reading and checking is done by
`thence.service.config`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from thence.service.forward_settings import ForwardSettings
from thence.service.section import Secret, Section

_LAST_PORT = 65535
_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", start=1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", start=1)},
}
_SIZE = re.compile(rf"\s*(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS)})\s*", re.IGNORECASE | re.ASCII)


class Address(str):
    """A host and a port, written as `host:port` or `[v6]:port`. Port 0 means any free one."""

    __slots__ = ()

    def __new__(cls, text: str) -> Address:
        """Check the text."""
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or int(port) > _LAST_PORT:
            raise ValueError("Expected an address such as `127.0.0.1:8080`")
        return super().__new__(cls, text)

    @property
    def host(self) -> str:
        """The name or number before the port, without brackets."""
        return self.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def port(self) -> int:
        """The number after the last colon."""
        return int(self.rpartition(":")[2])


class Size(str):
    """A number of bytes, written as `10GiB`, `256MB` or plainly `4096`. It prints as it was written."""

    __slots__ = ()

    def __new__(cls, text: str) -> Size:
        """Check the text."""
        if _SIZE.fullmatch(text) is None:
            raise ValueError("Expected a size such as `10GiB`, `256MB` or `4096`")
        return super().__new__(cls, text)

    @property
    def size_bytes(self) -> int:
        """The number."""
        found = _SIZE.fullmatch(self)
        assert found is not None  # noqa: S101 - checked when it was made
        return int(float(found[1]) * _UNITS[found[2].lower()])


Count = Annotated[int, msgspec.Meta(ge=1)]
Hours = Annotated[float, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


def _size(text: str) -> Size:
    return msgspec.field(default_factory=lambda: Size(text))


class LetterSettings(Section, frozen=True):
    """How much the handler `journal` keeps; the oldest expire, whichever limit is reached first."""

    max_bytes: Size = _size("1GiB")
    max_count: Count = 1_000_000
    max_age_hours: Hours | None = None


class FailedFileSettings(Section, frozen=True):
    """Where the handler `file` writes, and when it begins another file."""

    path: Path | None = None
    max_bytes: Size = _size("64MiB")
    max_files: Count = 10


class FailedHttpSettings(Section, frozen=True):
    """Where the handler `http` posts to."""

    url: str | None = None
    authorization: Secret | None = None
    timeout_seconds: Seconds = 5.0


class FailedSettings(Section, frozen=True):
    """What happens to events that break the specification."""

    to: str | list[str] = "journal"
    answer_within_seconds: Seconds = 2.0
    journal: LetterSettings = msgspec.field(default_factory=LetterSettings)
    file: FailedFileSettings = msgspec.field(default_factory=FailedFileSettings)
    http: FailedHttpSettings = msgspec.field(default_factory=FailedHttpSettings)
    options: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> list[str]:
        """The handlers, each once, in the order given."""
        given = self.to.split(",") if isinstance(self.to, str) else self.to
        return list(dict.fromkeys(name.strip() for name in given if name.strip()))


class KeySettings(Section, frozen=True):
    """An API key: its name, what it may do, and the key or its hash (`sha256:` and hex, which is no secret)."""

    id: str
    key: Secret
    role: Literal["write", "read", "admin"] = "write"


class LineageSettings(Section, frozen=True):
    """How OpenLineage events are checked, and whose are taken."""

    validate: Literal["strict", "spec", "lenient"] = "spec"
    # YAML reads a plain `off` as false.
    validate_facets: dict[str, Literal["strict", "spec", "lenient", "off"] | bool] = {}
    keys: list[KeySettings] = []
    failed: FailedSettings = msgspec.field(default_factory=FailedSettings)
    pass_through: str | None = None


class CollectSettings(Section, frozen=True):
    """The HTTP server: events, health, metrics and the page."""

    listen: Address = msgspec.field(default_factory=lambda: Address("127.0.0.1:8080"))
    lineage: LineageSettings = msgspec.field(default_factory=LineageSettings)


class PartitionSettings(Section, frozen=True):
    """When a journal begins another file."""

    age_hours: Hours = 1.0
    bytes: Size = _size("256MiB")


class LaneSettings(Section, frozen=True):
    """How much a journal keeps, and what it does when there is more."""

    max_age_hours: Hours | None = 72.0
    max_bytes: Size = _size("10GiB")
    when_full: Literal["expire_oldest", "refuse"] = "expire_oldest"
    partition: PartitionSettings = msgspec.field(default_factory=PartitionSettings)


class JournalSettings(Section, frozen=True):
    """The journals, one for each lane."""

    lineage: LaneSettings = msgspec.field(default_factory=LaneSettings)


class StoreSettings(Section, frozen=True):
    """PostgreSQL for the lineage store. Without a `dsn`, thence starts one of its own below `state`."""

    dsn: Secret | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None


class SparkSettings(Section, frozen=True):
    """The one Spark that ingest and load run on."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    executor_python: str | None = None
    conf: dict[str, str] = {}


class LogSettings(Section, frozen=True):
    """Logs go to standard error: readable on a terminal, JSON elsewhere, unless `format` says which."""

    format: Literal["auto", "json", "text"] = "auto"
    level: Literal["debug", "info", "warning", "error"] = "info"


class MetricsSettings(Section, frozen=True):
    """What `/metrics` and other exporters show."""

    prometheus: bool = True
    statsd: Address | None = None
    statsd_tags: bool = True
    statsd_interval_seconds: Seconds = 10.0


class Settings(Section, frozen=True):
    """Everything in `thence.yaml`."""

    state: Path = msgspec.field(default_factory=lambda: Path("state"))
    collect: CollectSettings = msgspec.field(default_factory=CollectSettings)
    forward: dict[str, ForwardSettings] = {}
    journal: JournalSettings = msgspec.field(default_factory=JournalSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    spark: SparkSettings = msgspec.field(default_factory=SparkSettings)
    metrics: MetricsSettings = msgspec.field(default_factory=MetricsSettings)
    log: LogSettings = msgspec.field(default_factory=LogSettings)

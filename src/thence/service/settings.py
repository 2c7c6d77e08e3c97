"""What an operator can set, with every default. The names here are the keys of `thence.yaml`.

Each field is documented in docs/reference/settings.md, and a test keeps that true. Reading and checking is done by
`thence.service.config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

_LAST_PORT = 65535


class Secret(str):
    """A string that does not show itself. `reveal` gives it to whoever needs it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'**********'"

    def __str__(self) -> str:
        return "**********"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def reveal(self) -> str:
        """The string itself."""
        return str.__str__(self)


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


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One mapping of the file; unknown keys are refused."""


class KeySettings(Section, frozen=True):
    """An API key: its name, what it may do, and the key or its hash (`sha256:` and hex, which is no secret)."""

    id: str
    key: Secret
    role: Literal["write", "read", "admin"] = "write"


class LineageSettings(Section, frozen=True):
    """How OpenLineage events are checked, and whose are taken."""

    validate: Literal["strict", "spec", "lenient"] = "spec"
    validate_facets: dict[str, Literal["strict", "spec", "lenient", "off"]] = {}
    keys: list[KeySettings] = []


class CollectSettings(Section, frozen=True):
    """The HTTP server: events, health, metrics and the page."""

    listen: Address = msgspec.field(default_factory=lambda: Address("127.0.0.1:8080"))
    lineage: LineageSettings = msgspec.field(default_factory=LineageSettings)


class StoreSettings(Section, frozen=True):
    """PostgreSQL for the lineage store. Without a `dsn`, thence starts one of its own below `state`."""

    dsn: Secret | None = None
    port: int | None = None


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


class Settings(Section, frozen=True):
    """Everything in `thence.yaml`."""

    state: Path = msgspec.field(default_factory=lambda: Path("state"))
    collect: CollectSettings = msgspec.field(default_factory=CollectSettings)
    store: StoreSettings = msgspec.field(default_factory=StoreSettings)
    spark: SparkSettings = msgspec.field(default_factory=SparkSettings)
    metrics: MetricsSettings = msgspec.field(default_factory=MetricsSettings)
    log: LogSettings = msgspec.field(default_factory=LogSettings)

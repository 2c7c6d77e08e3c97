"""What an operator can say about one destination of the forwarder: a section below `forward:` for each."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from thence.service.section import Secret, Section


class DropSettings(Section, frozen=True):
    """Spare the destination events whose field fits a pattern."""

    field: Literal["job.name", "job.namespace", "dataset.name", "dataset.namespace", "kind", "event_type"]
    pattern: str
    match: Literal["exact", "glob", "regex"] = "glob"


class ForwardSettings(Section, frozen=True):
    """One destination. Which keys it needs depends on its type."""

    type: Literal[
        "plain",
        "marquez",
        "openmetadata",
        "datahub",
        "dataplex",
        "snowflake",
        "webhook",
        "kafka",
        "amqp",
        "file",
        "stdout",
    ] = "plain"
    url: str | None = None
    batch_path: str | None = None
    token: Secret | None = None
    token_file: Path | None = None
    headers: dict[str, Secret] = {}
    signing_key: Secret | None = None
    names: dict[str, str] = {}
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    brokers: str | None = None
    topic: str | None = None
    partition_by: Literal["job", "run"] = "job"
    options: dict[str, Secret] = {}
    exchange: str | None = None
    routing_key: str = ""
    path: Path | None = None
    on_reject: Literal["block", "park"] = "block"
    start: Literal["oldest", "newest"] = "oldest"
    drop: list[DropSettings] = []
    rename_namespaces: dict[str, str] = {}
    redact_facets: list[str] = []
    redact_fields: list[str] = []
    max_bytes: int | None = None

"""Handlers, limits and the validator come out of the settings as they were written."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from thence.core.errors import ConfigError
from thence.journal.letters.limits import LetterLimits
from thence.journal.limits import Limits
from thence.service import config
from thence.service.failed import failed_events
from thence.service.lanes import letter_limits_of, limits_of, validator_of
from thence.service.settings import Settings, Size
from thence.testing.contracts.deadletters import letter, numbers
from thence.testing.memory import MemoryDeadLetters


def read(tmp_path: Path, text: str = "") -> Settings:
    path = tmp_path / "thence.yaml"
    path.write_text(text)
    return config.load(path, {}, {}).settings


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_seen.py").write_text("from pathlib import Path\n" + SEEN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_seen:Seen"


SEEN = """
class Seen:
    name = "seen"
    def __init__(self, mark): self.mark = mark
    def handle(self, letters): Path(self.mark).write_text(letters[0].code)
    def close(self): pass
"""


def test_several_handlers_get_the_same_letter(tmp_path: Path, own: str) -> None:
    text = f"""
collect:
  lineage:
    failed:
      to: [journal, file, log, "{own}"]
      options: {{"{own}": {{mark: {tmp_path}/mark}}}}
"""
    letters = MemoryDeadLetters()
    failed = read(tmp_path, text).collect.lineage.failed

    async def run() -> None:
        events = failed_events(failed, tmp_path, letters)
        await events.submit(letter(7))
        assert numbers(letters.find()) == [7], "durable before the answer"
        (line,) = (tmp_path / "failed" / "failed.ndjson").read_text().splitlines()
        assert json.loads(line)["code"] == "code"
        await asyncio.to_thread(events.close, 60)
        assert {name: each.handled for name, each in events.counters().items()} == {
            "journal": 1,
            "file": 1,
            "log": 1,
            "seen": 1,
        }

    asyncio.run(run())
    assert (tmp_path / "mark").read_text() == "code"


def test_one_handler_may_be_written_plainly(tmp_path: Path) -> None:
    assert read(tmp_path).collect.lineage.failed.names == ["journal"]
    failed = read(tmp_path, "collect: {lineage: {validate: spec, failed: {to: file}}}").collect.lineage.failed
    assert failed.names == ["file"]
    environment = {"THENCE_COLLECT__LINEAGE__FAILED__TO": "file, log,file"}
    assert config.load(None, {}, environment).settings.collect.lineage.failed.names == ["file", "log"]


def test_http_needs_an_address(tmp_path: Path) -> None:
    failed = read(tmp_path, "collect: {lineage: {failed: {to: http}}}").collect.lineage.failed
    with pytest.raises(ConfigError) as caught:
        failed_events(failed, tmp_path, MemoryDeadLetters())
    assert caught.value.code == "failed.handler_url"


def test_limits_are_those_of_the_architecture_unless_set(tmp_path: Path) -> None:
    settings = read(tmp_path)
    assert limits_of(settings.journal.lineage) == Limits()
    assert letter_limits_of(settings.collect.lineage.failed.journal) == LetterLimits()
    text = """
journal:
  lineage: {max_age_hours: null, max_bytes: 1.5GB, when_full: refuse, partition: {age_hours: 0.5, bytes: 1MiB}}
collect: {lineage: {failed: {journal: {max_bytes: 4096, max_count: 7, max_age_hours: 2}}}}
"""
    settings = read(tmp_path, text)
    assert limits_of(settings.journal.lineage) == Limits(1_500_000_000, None, "refuse", 1 << 20, 1800)
    assert letter_limits_of(settings.collect.lineage.failed.journal) == LetterLimits(4096, 7, 7200)


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [
        ("4096", 4096),
        ("10GiB", 10 << 30),
        ("256 MB", 256_000_000),
        ("1.5kib", 1536),
        ("2TB", 2 * 10**12),
        ("7b", 7),
    ],
)
def test_a_size_prints_as_it_was_written(tmp_path: Path, written: str, size_bytes: int) -> None:
    settings = read(tmp_path, f"journal: {{lineage: {{partition: {{bytes: {written}}}}}}}")
    assert settings.journal.lineage.partition.bytes.size_bytes == size_bytes
    assert config.shown(settings)["journal.lineage.partition.bytes"] == written


@pytest.mark.parametrize("written", ["10XB", "-1", "GiB", "true", "1e9", "[]", "٣MB"])
def test_what_is_no_size_is_refused(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, f"journal: {{lineage: {{max_bytes: {written}}}}}")
    assert caught.value.code == "config.wrong_value"
    with pytest.raises(ValueError, match="Expected a size"):
        Size("ten")


@pytest.mark.parametrize(
    "text",
    [
        "journal: {lineage: {max_age_hours: 0}}",
        "journal: {lineage: {partition: {age_hours: -1}}}",
        "collect: {lineage: {failed: {file: {max_files: 0}}}}",
        "collect: {lineage: {failed: {answer_within_seconds: 0}}}",
        "collect: {lineage: {validate: sloppy}}",
    ],
)
def test_limits_that_cannot_work_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        read(tmp_path, text)


def test_off_may_be_written_without_quotes(tmp_path: Path) -> None:
    text = "collect: {lineage: {validate: lenient, validate_facets: {run/facets/parent: off, job/facets/sql: strict}}}"
    policy = validator_of(read(tmp_path, text).collect.lineage).policy
    assert policy.level == "lenient"
    assert policy.is_off("run", "parent")
    assert policy.formats_of("job", "sql")
    with pytest.raises(ConfigError):
        validator_of(read(tmp_path, text.replace("off", "on")).collect.lineage)

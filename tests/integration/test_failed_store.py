"""The store of failed events on a real disk: death, damage, a full disk, limits, and other processes beside it."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from thence.core.errors import ConfigError, Unavailable
from thence.core.ports import DeadLetter
from thence.journal.letters.limits import LetterLimits
from thence.journal.letters.queries import Filters
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.clock import ManualClock
from thence.testing.contracts.deadletters import letter, numbers

PUT_FOR_EVER = """
import sys
from pathlib import Path
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import letter

letters = SqliteDeadLetters(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    letters.put([letter(number), letter(number + 1)])
    print(number, flush=True)
    number += 2
"""


def failing(number: int, at: datetime, *, size_bytes: int = 0) -> DeadLetter:
    plain = letter(number, failed_at=at)
    return msgspec.structs.replace(
        plain, event=msgspec.structs.replace(plain.event, payload=b"x" * size_bytes)
    )


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [getattr(record, "action", "") for record in caplog.records]


# Death


def test_every_put_that_returned_survives_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "failed.db"
    dice = random.Random(4)
    said: set[int] = set()
    following = 0
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", PUT_FOR_EVER, str(path), str(following)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            for _ in range(dice.randrange(1, 60)):
                said.add(int(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGKILL)
        said |= {int(line) for line in process.stdout.read().split("\n")[:-1]}
        process.stdout.close()
        assert process.wait(60) == -signal.SIGKILL
        letters = SqliteDeadLetters(path)
        found = numbers(letters.find(limit=100_000))
        assert said <= set(found)
        assert {number + 1 for number in said} <= set(found)
        assert len(found) % 2 == 0, "a put is all or none"
        assert letters.totals().letter_count == len(found)
        assert letters.counters.damaged_files == 0
        letters.close()
        following = max(found) + 1
    assert len(said) > 8


PUT_TEN = """
import sys
from pathlib import Path
from thence.collect.handlers.file import FileHandler
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import letter
path = Path(sys.argv[1])
put = SqliteDeadLetters(path).put if path.suffix == ".db" else FileHandler(path).handle
for number in range(10):
    put([letter(number)])
    print("put", flush=True)
"""


@pytest.mark.parametrize(
    ("name", "synced"), [("failed.db", "failed.db-wal"), ("failed.ndjson", "failed.ndjson")]
)
def test_letters_are_synced_before_the_call_returns(tmp_path: Path, name: str, synced: str) -> None:
    """What kill -9 cannot show: each call waits for the disk."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=fdatasync,fsync,write", "-o", str(trace), sys.executable]
    subprocess.run(
        [*command, "-c", PUT_TEN, str(tmp_path / name)], check=True, timeout=60, capture_output=True
    )
    count = 0
    counts = [0]
    for line in trace.read_text().splitlines():
        if "sync(" in line and f"/{synced}>" in line:
            count += 1
        elif '"put' in line:
            counts.append(count)
    assert len(counts) == 11
    assert all(later > earlier for earlier, later in itertools.pairwise(counts))


# Damage


def put_aside(path: Path) -> list[str]:
    return sorted(each.name for each in (path.parent / "damaged").glob("*"))


@pytest.mark.parametrize("damage", ["head", "all", "cut", "page"])
def test_a_damaged_file_is_put_aside_at_the_start(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "failed.db"
    letters = SqliteDeadLetters(path)
    letters.put([letter(number) for number in range(300)])
    letters.close()
    content = bytearray(path.read_bytes())
    match damage:
        case "head":
            content[:16] = b"no SQLite at all"
        case "all":
            content[:] = os.urandom(len(content))
        case "cut":
            content[len(content) // 2 :] = b""
        case "page":
            content[3 * 8192 : 4 * 8192] = b"\xa5" * 8192
    path.write_bytes(content)
    letters = SqliteDeadLetters(path)
    assert letters.counters.damaged_files == 1
    assert "failed_store_damaged" in actions(caplog)
    (name,) = put_aside(path)
    assert (path.parent / "damaged" / name).read_bytes() == content
    letters.put([letter(7)])
    letters.close()
    letters = SqliteDeadLetters(path)
    assert numbers(letters.find()) == [7]
    assert letters.counters.damaged_files == 0
    letters.close()


def test_damage_that_is_met_while_running_costs_no_further_letter(tmp_path: Path) -> None:
    path = tmp_path / "failed.db"
    letters = SqliteDeadLetters(path)
    letters.put([letter(number) for number in range(300)])
    letters._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    # The pages that it holds in memory are good; another connection sees the disk.
    letters._connection.close()
    letters._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    with pytest.raises(Unavailable) as caught:
        letters.find()
    assert caught.value.code == "failed.damaged"
    letters.put([letter(1)])
    assert numbers(letters.find()) == [1]
    assert letters.counters.damaged_files == 1
    assert len(put_aside(path)) >= 1
    letters.close()


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "failed.db"
    SqliteDeadLetters(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=2")
    connection.close()
    with pytest.raises(ConfigError) as caught:
        SqliteDeadLetters(path)
    assert caught.value.code == "failed.newer"
    assert not (path.parent / "damaged").exists()


# A full disk

FULL = """
import json, os, sys
from pathlib import Path
from thence.collect.handlers.file import FileHandler
from thence.core.errors import Unavailable
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import letter, numbers
from thence.testing.contracts.samples import event

kind, place = sys.argv[1], Path(sys.argv[2])
if kind == "store":
    letters = SqliteDeadLetters(place / "failed.db")
    put = letters.put
else:
    put = FileHandler(place / "failed.ndjson").handle

def found():
    if kind == "store":
        return numbers(letters.find(limit=10000))
    lines = (place / "failed.ndjson").read_bytes().splitlines()
    return [int(json.loads(line)["id"].replace("-", ""), 16) & 0xFFFF for line in lines]

kept, codes = [], set()
for number in range(600):
    try:
        put([letter(number, event=event(number, size_bytes=5000))])
        kept.append(number)
    except Unavailable as error:
        codes.add(error.code)
assert found() == kept, (found(), kept)
full = len(kept)
assert 0 < full < 600
ballast = place / "ballast"
ballast.unlink()
put([letter(999)])
assert found() == [*kept, 999]
if kind == "store":
    letters.close()
    letters = SqliteDeadLetters(place / "failed.db")
    assert letters.counters.damaged_files == 0
    assert found() == [*kept, 999]
print(json.dumps({"full": full, "codes": sorted(codes)}))
"""


@pytest.mark.parametrize(("kind", "code"), [("store", "failed.disk_full"), ("file", "failed.handler_file")])
def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path, kind: str, code: str) -> None:
    place = tmp_path / "small"
    place.mkdir()
    ballast = 'head -c 500000 /dev/zero > "$0/ballast"'
    script = f'mount -t tmpfs -o size=2m tmpfs "$0" && {ballast} && exec "$1" -c "$2" "$3" "$0"'
    command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script]
    done = subprocess.run(
        [*command, str(place), sys.executable, FULL, kind], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["codes"] == [code]


def test_an_error_of_the_disk_is_unavailable(tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from thence.core.errors import Unavailable
from thence.journal.letters.store import SqliteDeadLetters
from thence.testing.contracts.deadletters import letter, numbers
letters = SqliteDeadLetters(Path(sys.argv[1]))
kept, codes = [], set()
for number in range(20):
    try:
        letters.put([letter(number)])
        kept.append(number)
    except Unavailable as error:
        codes.add(error.code)
assert set(kept) <= set(numbers(letters.find()))
print(len(kept), *codes)
"""
    SqliteDeadLetters(tmp_path / "failed.db").close()
    # The names of the calls differ between machines; every third sync fails.
    inject = ["-e", "inject=fdatasync,fsync:error=EIO:when=3+3"]
    command = ["strace", "-f", "-o", str(tmp_path / "trace"), *inject, sys.executable, "-c", program]
    done = subprocess.run([*command, str(tmp_path / "failed.db")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    kept, *codes = done.stdout.split()
    assert 0 < int(kept) < 20
    assert codes == ["failed.disk"]


# Limits


def test_the_oldest_expire_beyond_the_count_and_it_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letters = SqliteDeadLetters(tmp_path / "failed.db", LetterLimits(max_count=10))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    # The oldest failure goes, whatever its id.
    letters.put([failing(100 - number, at + timedelta(seconds=number)) for number in range(8)])
    letters.put([failing(100 - number, at + timedelta(seconds=number)) for number in range(8, 13)])
    assert sorted(numbers(letters.find())) == list(range(88, 98))
    totals = letters.totals()
    assert (totals.letter_count, totals.expired_count) == (10, 3)
    assert totals.expired_bytes > 0
    assert letters.counters.expired_count == 3
    assert actions(caplog) == ["failed_expired"]
    letters.close()
    letters = SqliteDeadLetters(tmp_path / "failed.db", LetterLimits(max_count=10))
    assert letters.totals().expired_count == 3, "the file remembers"
    letters.close()


def test_bytes_are_bounded_and_the_disk_gets_them_back(tmp_path: Path) -> None:
    path = tmp_path / "failed.db"
    letters = SqliteDeadLetters(path, LetterLimits(max_bytes=1 << 20))
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(400):
        letters.put([failing(number, at + timedelta(seconds=number), size_bytes=20_000)])
    totals = letters.totals()
    assert totals.size_bytes <= 1 << 20
    assert totals.expired_count == 400 - totals.letter_count
    assert totals.letter_count >= 40
    on_disk = sum(each.stat().st_size for each in tmp_path.iterdir())
    assert on_disk < 3 * (1 << 20) + (5 << 20), "the log is bounded as well"
    assert letters.purge() == totals.letter_count
    assert path.stat().st_size < 100_000
    assert (tmp_path / "failed.db-wal").stat().st_size == 0
    assert letters.totals().size_bytes == 0
    letters.close()


def test_what_is_too_old_expires(tmp_path: Path) -> None:
    clock = ManualClock()
    letters = SqliteDeadLetters(tmp_path / "failed.db", LetterLimits(max_age_seconds=3600), clock)
    letters.put([failing(1, clock.now())])
    clock.advance(1800)
    letters.put([failing(2, clock.now())])
    clock.advance(1801)
    assert numbers(letters.find()) == [1, 2]
    letters.maintain()
    assert numbers(letters.find()) == [2]
    clock.advance(3600)
    letters.put([failing(3, clock.now())])
    assert numbers(letters.find()) == [3]
    assert letters.counters.expired_count == 2
    letters.close()


def test_totals_are_those_of_the_letters_whatever_happened(tmp_path: Path) -> None:
    letters = SqliteDeadLetters(tmp_path / "failed.db")
    at = datetime(2026, 1, 1, tzinfo=UTC)
    letters.put([failing(number, at, size_bytes=100 * number) for number in range(20)])
    letters.put([failing(number, at, size_bytes=5) for number in range(5, 15)])
    letters.remove([failing(number, at).id for number in range(3, 8)])
    (summed,) = letters._connection.execute("SELECT sum(size_bytes), count(*) FROM letters")
    assert (letters.totals().size_bytes, letters.totals().letter_count) == summed
    letters.close()


# Search


def test_filters_hold_together(tmp_path: Path) -> None:
    letters = SqliteDeadLetters(tmp_path / "failed.db")
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def made(number: int, payload: bytes, **changes: object) -> DeadLetter:
        plain = letter(number, failed_at=at + timedelta(minutes=number), **changes)
        return msgspec.structs.replace(plain, event=msgspec.structs.replace(plain.event, payload=payload))

    letters.put(
        [
            made(0, b'{"producer": "https://spark.example/1.2", "job": "caf\xc3\xa9"}'),
            made(1, b'{"producer": "https://airflow.example"}', stage="forward"),
            made(2, b'{"producer": 7}', code="other"),
            made(3, b"\xff not json spark", reason="spark is wrong"),
            made(4, b'{"producer": "https://spark.example/1.3"}', code="other"),
        ]
    )

    def found(**given: object) -> list[int]:
        filters = Filters(**given)  # type: ignore[arg-type]
        assert letters.matching(filters) == len(letters.search(filters))
        return numbers(letters.search(filters))

    assert found(producer="spark") == [0, 4]
    assert found(producer="spark", code="other") == [4]
    assert found(since=at + timedelta(minutes=1), until=at + timedelta(minutes=3)) == [1, 2]
    assert found(text="café") == [0]
    assert found(text="spark") == [0, 3, 4]
    assert found(text="spark is wrong") == [3]
    assert found(stage="forward") == [1]
    assert found() == [0, 1, 2, 3, 4]
    assert numbers(letters.search(Filters(producer="spark"), after=letter(0).id, limit=1)) == [4]
    assert letters.purge(Filters(code="other", producer="spark")) == 1
    assert found() == [0, 1, 2, 3]
    assert letters.get(letter(3).id) is not None
    assert letters.get(UUID(int=3)) is None
    letters.close()


# Beside it


def test_another_process_reads_and_removes_while_this_one_puts(tmp_path: Path) -> None:
    path = tmp_path / "failed.db"
    letters = SqliteDeadLetters(path)
    letters.put([letter(0)])
    program = """
import sys
from pathlib import Path
from thence.journal.letters.store import SqliteDeadLetters
beside = SqliteDeadLetters.visit(Path(sys.argv[1]))
removed = 0
while removed < 200:
    removed += beside.remove([each.id for each in beside.find(limit=10)])
beside.close()
print(removed)
"""
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    stop = threading.Event()
    put = 1

    def work() -> None:
        nonlocal put
        while not stop.is_set():
            letters.put([letter(put)])
            put += 1

    writer = threading.Thread(target=work)
    writer.start()
    try:
        out, _ = process.communicate(timeout=60)
    finally:
        stop.set()
        writer.join()
        process.kill()
    assert letters.totals().letter_count == put - int(out)
    letters.close()


def test_a_visitor_makes_nothing_and_puts_nothing_aside(tmp_path: Path) -> None:
    assert SqliteDeadLetters.visit(tmp_path / "failed.db") is None
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "failed.db").write_bytes(b"no SQLite" * 1000)
    with pytest.raises(Unavailable) as caught:
        SqliteDeadLetters.visit(tmp_path / "failed.db")
    assert caught.value.code == "failed.damaged"
    assert [each.name for each in tmp_path.iterdir()] == ["failed.db"]

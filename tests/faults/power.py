"""The journal loses power at random moments; a control without syncs must lose what was acknowledged."""

from __future__ import annotations

import random
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from thence.core.event import Event
from thence.core.tally import Settled
from thence.journal.limits import Limits
from thence.journal.log import FileJournal
from thence.testing.power import PowerLost, PowerSupply

SHORT = {"rounds": 60}
LONG = {"rounds": 2000}
SMALL = Limits(partition_bytes=9000)


class Loss(AssertionError):
    """Something that was acknowledged is not there."""


def run(*, rounds: int, seed: int) -> dict[str, object]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            trial(Path(folder) / str(number), chance, honest=True)
        lost = 0
        for number in range(20):
            try:
                trial(Path(folder) / f"control-{number}", chance, honest=False)
            except Loss:
                lost += 1
    assert lost > 10, (
        f"the control lost something in {lost} of 20 trials only: this test would not see a loss"
    )
    return {"power_losses": rounds, "acknowledged_lost": 0, "control_trials_that_lost": lost}


def event(number: int, chance: random.Random) -> Event:
    payload = b"%d " % number + chance.randbytes(chance.choice((10, 200, 5000)))
    return Event(UUID(int=number), datetime(2026, 1, 1, tzinfo=UTC), "lineage", "key", payload)


def trial(directory: Path, chance: random.Random, *, honest: bool) -> None:
    live, wreck = directory / "live", directory / "wreck"
    live.mkdir(parents=True)
    power = PowerSupply(live, chance, fails_at=chance.randrange(1, 60), honest=honest)
    acknowledged: list[Event] = []
    settled = [0]
    with suppress(PowerLost), power.on():
        work(live, chance, acknowledged, settled)
    power.wreckage(wreck)
    examine(wreck, acknowledged, settled[0])


def work(directory: Path, chance: random.Random, acknowledged: list[Event], settled: list[int]) -> None:
    journal = FileJournal(directory, SMALL)
    cursor = journal.cursor("slow")
    number = 0
    while True:
        batch = [event(number + each, chance) for each in range(1, chance.randrange(2, 6))]
        number += len(batch)
        journal.append(batch)
        acknowledged += batch
        if chance.random() < 0.4 and (count := min(3, cursor.tally().waiting)):
            cursor.read(1)
            cursor.settle(Settled(delivered=count))
            settled[0] += count
        if chance.random() < 0.2:
            journal.maintain()


def examine(directory: Path, acknowledged: list[Event], settled: int) -> None:
    journal = FileJournal(directory, SMALL)
    cursor = journal.cursor("slow")
    tally = cursor.tally()
    assert tally.holds
    delivered = tally.settled.delivered
    # A settle that was under way may count or not; one that returned always does.
    if not settled <= delivered <= settled + 3 and acknowledged:
        raise Loss(f"settled {settled}, found {delivered}")
    found = []
    while records := cursor.read(100):
        found += [record.event for record in records]
        cursor.settle(Settled(delivered=len(records)))
    wanted = acknowledged[delivered:]
    if found[: len(wanted)] != wanted:
        raise Loss(f"{len(wanted)} acknowledged events were waiting, {len(found)} are there")
    journal.close()

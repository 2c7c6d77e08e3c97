"""What an `OffsetLog` promises: one chain of versions for each stream, and no writer behind the newest lease."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from thence.core.errors import Rejected
from thence.core.ports import OffsetLog, OffsetRecord
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.together import attempted, together


class OffsetLogContract(Contract[OffsetLog]):
    """The suite of `thence.core.ports.OffsetLog`."""

    def test_an_unknown_stream_has_no_records(self, place: Place[OffsetLog]) -> None:
        """Nothing is known of a stream that never started."""
        log = place.open()
        assert log.latest("app") is None
        assert log.completed("app") is None

    def test_a_started_record_is_the_latest(self, place: Place[OffsetLog]) -> None:
        """What was started is there, and does not count as completed."""
        log = place.open()
        log.start(record(1))
        assert log.latest("app") == record(1)
        assert log.completed("app") is None

    def test_a_completed_record_is_the_truth(self, place: Place[OffsetLog]) -> None:
        """`completed` gives the completed record with the highest version, past started and failed ones."""
        log = place.open()
        self.commit(log, record(1))
        self.commit(log, record(2))
        assert log.completed("app") == log.latest("app") == record(2, state="completed")
        self.commit(log, record(3), "failed")
        assert log.latest("app") == record(3, state="failed")
        log.start(record(4))
        assert log.latest("app") == record(4)
        assert log.completed("app") == record(2, state="completed")

    def test_many_versions_stay_in_order(self, place: Place[OffsetLog]) -> None:
        """Versions are numbers and not text: the twelfth is after the ninth."""
        log = place.open()
        for version in range(1, 13):
            self.commit(log, record(version))
        completed = log.completed("app")
        assert completed is not None
        assert completed.version == 12

    def test_offsets_come_back_as_they_were(self, place: Place[OffsetLog]) -> None:
        """Partitions and offsets are whole numbers of any size that Kafka has; also none."""
        log = place.open()
        offsets = {0: 0, 7: 2**62, 1_000: 1} | {100 + n: n for n in range(500)}
        self.commit(log, record(1, offsets=offsets))
        assert log.latest("app") == record(1, offsets=offsets, state="completed")
        self.commit(log, record(2, offsets={}))
        assert log.latest("app") == record(2, offsets={}, state="completed")

    def test_a_caller_keeps_its_mapping(self, place: Place[OffsetLog]) -> None:
        """What the caller does with its mapping afterwards changes no record."""
        log = place.open()
        offsets = {0: 1}
        log.start(record(1, offsets=offsets))
        offsets[0] = 99
        assert log.latest("app") == record(1, offsets={0: 1})

    def test_the_first_record_may_have_any_version(self, place: Place[OffsetLog]) -> None:
        """A lost log is rebuilt from the table, and goes on where that stands."""
        log = place.open()
        self.commit(log, record(41))
        log.start(record(42))
        assert log.latest("app") == record(42)

    @pytest.mark.parametrize("version", [1, 2, 4])
    def test_versions_are_a_chain(self, place: Place[OffsetLog], version: int) -> None:
        """A version that is not the latest plus one is refused and leaves nothing, whatever the latest is."""
        for state in ("completed", "failed"):
            log = place.open()
            app = f"app-{state}"
            self.commit(log, record(1, app_id=app))
            self.commit(log, record(2, app_id=app), state)
            assert refusal(partial(log.start, record(version, app_id=app))) == "offsets.version"
            assert log.latest(app) == record(2, app_id=app, state=state)

    def test_an_unresolved_record_stands_in_the_way(self, place: Place[OffsetLog]) -> None:
        """Nothing is started while the latest is still started."""
        log = place.open()
        log.start(record(1))
        assert refusal(partial(log.start, record(2))) == "offsets.unresolved"
        assert log.latest("app") == record(1)
        log.finish("app", 1, "failed", token=1)
        log.start(record(2))

    def test_an_older_token_cannot_start(self, place: Place[OffsetLog]) -> None:
        """Who has lost the lease is fenced off, before anything else is looked at."""
        log = place.open()
        self.commit(log, record(1, token=5))
        assert refusal(partial(log.start, record(2, token=4))) == "offsets.fenced"
        log.start(record(2, token=6))
        assert refusal(partial(log.start, record(2, token=5))) == "offsets.fenced"
        assert refusal(partial(log.start, record(3, token=5))) == "offsets.fenced"
        assert log.latest("app") == record(2, token=6)

    def test_an_older_token_cannot_finish(self, place: Place[OffsetLog]) -> None:
        """Who has lost the lease cannot decide about the record of the next."""
        log = place.open()
        self.commit(log, record(1, token=5))
        log.start(record(2, token=6))
        assert refusal(partial(log.finish, "app", 2, "completed", token=5)) == "offsets.fenced"
        assert log.latest("app") == record(2, token=6)

    def test_finishing_fences_too(self, place: Place[OffsetLog]) -> None:
        """The next holder resolves what the last one left, and from then on the last one cannot write."""
        log = place.open()
        log.start(record(1, token=1))
        log.finish("app", 1, "failed", token=2)
        assert refusal(partial(log.start, record(2, token=1))) == "offsets.fenced"
        log.start(record(2, token=2))

    @pytest.mark.parametrize("state", ["completed", "failed"])
    def test_finishing_may_be_repeated(
        self, place: Place[OffsetLog], state: Literal["completed", "failed"]
    ) -> None:
        """To say the same again is nothing new, also when the next version has started."""
        log = place.open()
        self.commit(log, record(1), state)
        log.finish("app", 1, state, token=1)
        log.start(record(2))
        log.finish("app", 1, state, token=1)
        assert log.latest("app") == record(2)
        log.finish("app", 2, "failed", token=1)
        done = log.completed("app")
        assert done == (record(1, state="completed") if state == "completed" else None)

    def test_what_is_resolved_stays_so(self, place: Place[OffsetLog]) -> None:
        """A record that was completed cannot fail, and one that failed cannot be completed."""
        log = place.open()
        self.commit(log, record(1))
        assert refusal(partial(log.finish, "app", 1, "failed", token=1)) == "offsets.resolved"
        self.commit(log, record(2), "failed")
        assert refusal(partial(log.finish, "app", 2, "completed", token=9)) == "offsets.resolved"
        assert log.completed("app") == record(1, state="completed")
        assert log.latest("app") == record(2, state="failed")

    def test_what_never_started_cannot_finish(self, place: Place[OffsetLog]) -> None:
        """There must be a record to resolve."""
        log = place.open()
        assert refusal(partial(log.finish, "app", 1, "completed", token=1)) == "offsets.unknown"
        log.start(record(1))
        assert refusal(partial(log.finish, "app", 2, "completed", token=1)) == "offsets.unknown"
        assert log.latest("app") == record(1)

    def test_streams_do_not_touch_each_other(self, place: Place[OffsetLog]) -> None:
        """Each stream has its own versions, its own fence and its own records."""
        log = place.open()
        self.commit(log, record(7, app_id="app", token=9))
        log.start(record(1, app_id="App", token=1))
        assert refusal(partial(log.start, record(1, app_id="app", token=9))) == "offsets.version"
        self.commit(log, record(1, app_id="o'dd \N{SNOWMAN}", token=2))
        assert log.completed("App") is None
        assert log.completed("app") == record(7, token=9, state="completed")

    def test_a_crash_keeps_what_was_started(self, place: Place[OffsetLog]) -> None:
        """A crash between `start` and `finish` leaves a started record for the next holder to resolve."""
        log = place.open()
        self.commit(log, record(1))
        log.start(record(2))
        log = place.revive(log)
        assert log.latest("app") == record(2)
        assert log.completed("app") == record(1, state="completed")
        log.finish("app", 2, "completed", token=2)
        assert log.completed("app") == record(2, state="completed")

    def test_a_crash_keeps_what_was_finished(self, place: Place[OffsetLog]) -> None:
        """What was resolved stays resolved, and the chain goes on after it."""
        log = place.open()
        self.commit(log, record(1), "failed")
        log = place.revive(log)
        assert log.latest("app") == record(1, state="failed")
        self.commit(log, record(2))
        log = place.revive(log)
        assert log.completed("app") == record(2, state="completed")

    def test_a_crash_keeps_the_fence(self, place: Place[OffsetLog]) -> None:
        """An older token is refused after a crash as before."""
        log = place.open()
        log.start(record(1, token=5))
        log.finish("app", 1, "completed", token=6)
        log = place.revive(log)
        assert refusal(partial(log.start, record(2, token=5))) == "offsets.fenced"

    def test_one_of_many_starts_a_version(self, place: Place[OffsetLog]) -> None:
        """However many start the same version at the same time, one does and the others are refused."""
        logs = [place.open() for _ in range(6)]
        for version in range(1, 6):
            offsets = [{0: 100 * version + number} for number in range(len(logs))]
            calls = [
                attempted(partial(log.start, record(version, offsets=mine)))
                for log, mine in zip(logs, offsets, strict=True)
            ]
            results = together(calls)
            assert results.count(None) == 1, results
            assert logs[0].latest("app") == record(version, offsets=offsets[results.index(None)])
            logs[0].finish("app", version, "completed", token=1)

    def commit(
        self, log: OffsetLog, started: OffsetRecord, state: Literal["completed", "failed"] = "completed"
    ) -> None:
        """Start a record and resolve it."""
        log.start(started)
        log.finish(started.app_id, started.version, state, token=started.token)


def record(
    version: int,
    *,
    app_id: str = "app",
    offsets: dict[int, int] | None = None,
    token: int = 1,
    state: Literal["started", "completed", "failed"] = "started",
) -> OffsetRecord:
    """A record of a stream."""
    chosen = {0: 10 * version, 1: version} if offsets is None else offsets
    return OffsetRecord(app_id, version, chosen, token, state)


def refusal(call: Callable[[], object]) -> str:
    """The code with which a call is rejected."""
    with pytest.raises(Rejected) as caught:
        call()
    return caught.value.code

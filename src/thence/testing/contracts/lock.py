"""What a `Lock` promises. Two implementations open at one place stand for two processes that compete."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import pytest

from thence.core.errors import Rejected, Unavailable
from thence.core.ports import Lease, Lock
from thence.testing.contracts.place import Contract, Place
from thence.testing.contracts.together import attempted, together


class LockContract(Contract[Lock]):
    """The suite of `thence.core.ports.Lock`."""

    # An implementation that lives by another clock than the test's sets this to something short.
    lease_seconds: ClassVar[float] = 60.0

    def let_pass(self, place: Place[Lock], seconds: float) -> None:
        """Let time pass for the implementation; one that reads a real clock sleeps here."""
        place.clock.advance(seconds)

    def test_a_free_lock_is_taken(self, place: Place[Lock]) -> None:
        """Taking a free lock gives a lease that says who has what."""
        lease = self.take(place.open())
        assert (lease.name, lease.holder) == ("table", "one")
        assert lease.expires_at.utcoffset() is not None, "times are aware"

    def test_a_second_holder_is_refused(self, place: Place[Lock]) -> None:
        """A lock that is held is refused at once, and the holder is named."""
        self.take(place.open(), holder="the-first-holder")
        for lock in (place.open(), place.open()):
            with pytest.raises(Unavailable, match="the-first-holder") as caught:
                self.take(lock, holder="other")
            assert caught.value.code == "lock.held"

    def test_a_holder_is_refused_too(self, place: Place[Lock]) -> None:
        """The same name does not get the lock twice: a name is no identity."""
        lock = place.open()
        self.take(lock)
        with pytest.raises(Unavailable) as caught:
            self.take(lock)
        assert caught.value.code == "lock.held"

    def test_names_are_separate_locks(self, place: Place[Lock]) -> None:
        """Locks of other names are not touched, whatever the names are."""
        lock = place.open()
        names = ["table", "Table", "table ", "o'dd \"% \N{SNOWMAN}"]
        leases = [self.take(lock, name) for name in names]
        lock.release(leases[0])
        assert self.take(lock, "table").token > leases[0].token
        with pytest.raises(Unavailable):
            self.take(lock, names[1])

    def test_a_released_lock_is_free(self, place: Place[Lock]) -> None:
        """Whoever comes after a release gets the lock, with a higher token."""
        lock = place.open()
        first = self.take(lock)
        lock.release(first)
        assert self.take(place.open(), holder="other").token > first.token

    def test_releasing_twice_does_nothing(self, place: Place[Lock]) -> None:
        """A lease that was given back does not free the lock for the one who has it now."""
        lock = place.open()
        first = self.take(lock)
        lock.release(first)
        second = self.take(lock, holder="other")
        lock.release(first)
        with pytest.raises(Unavailable):
            self.take(lock)
        lock.release(second)
        assert self.take(lock).token > second.token

    def test_an_expired_lock_can_be_taken(self, place: Place[Lock]) -> None:
        """A holder that says nothing more loses its lease when the time is over, and not before."""
        lock, other = place.open(), place.open()
        first = self.take(lock)
        self.let_pass(place, self.lease_seconds / 2)
        with pytest.raises(Unavailable):
            self.take(other, holder="other")
        self.let_pass(place, self.lease_seconds)
        assert self.take(other, holder="other").token > first.token

    def test_renewing_keeps_the_lock(self, place: Place[Lock]) -> None:
        """A renewed lease lasts longer and keeps its token; the lease as it was before still names it."""
        lock, other = place.open(), place.open()
        first = self.take(lock)
        for _ in range(3):
            self.let_pass(place, self.lease_seconds * 0.6)
            renewed = lock.renew(first, seconds=self.lease_seconds)
            assert renewed.token == first.token
            assert renewed.expires_at > first.expires_at
        with pytest.raises(Unavailable):
            self.take(other, holder="other")
        lock.release(first)
        assert self.take(other, holder="other").token > first.token

    def test_a_lost_lease_cannot_be_renewed(self, place: Place[Lock]) -> None:
        """Renewing is refused once another holder has the lock, which keeps it."""
        lock, other = place.open(), place.open()
        first = self.take(lock)
        self.let_pass(place, self.lease_seconds * 1.5)
        second = self.take(other, holder="other")
        with pytest.raises(Rejected) as caught:
            lock.renew(first, seconds=self.lease_seconds)
        assert caught.value.code == "lock.lost"
        assert other.renew(second, seconds=self.lease_seconds).token == second.token

    def test_an_expired_lease_cannot_be_renewed(self, place: Place[Lock]) -> None:
        """A lease whose time is over is lost, though nobody else has taken the lock."""
        lock = place.open()
        first = self.take(lock)
        self.let_pass(place, self.lease_seconds * 1.5)
        with pytest.raises(Rejected) as caught:
            lock.renew(first, seconds=self.lease_seconds)
        assert caught.value.code == "lock.lost"
        assert self.take(place.open(), holder="other").token > first.token

    def test_a_released_lease_cannot_be_renewed(self, place: Place[Lock]) -> None:
        """What was given back is not held."""
        lock = place.open()
        lease = self.take(lock)
        lock.release(lease)
        with pytest.raises(Rejected) as caught:
            lock.renew(lease, seconds=self.lease_seconds)
        assert caught.value.code == "lock.lost"

    def test_releasing_a_lost_lease_frees_nothing(self, place: Place[Lock]) -> None:
        """A holder that slept too long cannot give away the lock of the next, though both have one name."""
        lock, other = place.open(), place.open()
        first = self.take(lock, holder="same")
        self.let_pass(place, self.lease_seconds * 1.5)
        self.take(other, holder="same")
        lock.release(first)
        with pytest.raises(Unavailable):
            self.take(place.open(), holder="third")

    def test_tokens_grow_for_ever(self, place: Place[Lock]) -> None:
        """Tokens grow across releases, expiries, restarts and crashes; none is given out twice."""
        lock = place.open()
        tokens = []
        for ending in ("release", "expire", "release-restart", "release-crash", "crash-expire", "release"):
            lease = self.take(lock)
            tokens.append(lease.token)
            if "release" in ending:
                lock.release(lease)
            if "restart" in ending:
                lock = place.restart(lock)
            if "crash" in ending:
                lock = place.revive(lock)
            if "expire" in ending:
                self.let_pass(place, self.lease_seconds * 1.5)
        assert tokens == sorted(set(tokens)), f"tokens do not strictly increase: {tokens}"

    def test_a_crash_loses_the_lease_in_the_end(self, place: Place[Lock]) -> None:
        """A lease of a process that died can be taken when its time is over, and nobody can renew it then."""
        lock = place.open()
        first = self.take(lock)
        place.crash(lock)
        self.let_pass(place, self.lease_seconds * 1.5)
        lock = place.open()
        assert self.take(lock, holder="other").token > first.token
        with pytest.raises(Rejected):
            lock.renew(first, seconds=self.lease_seconds)

    def test_the_crash_of_another_changes_nothing(self, place: Place[Lock]) -> None:
        """A lease that is held stays held while other processes die and start."""
        lock, other = place.open(), place.open()
        lease = self.take(lock)
        other = place.revive(other)
        with pytest.raises(Unavailable):
            self.take(other, holder="other")
        assert lock.renew(lease, seconds=self.lease_seconds).token == lease.token

    def test_one_of_many_gets_the_lock(self, place: Place[Lock]) -> None:
        """However many come at the same time, one gets the lock and all others are refused."""
        locks = [place.open() for _ in range(6)]
        highest = 0
        for _ in range(5):
            calls = [attempted(partial(self.take, lock, holder=f"h{n}")) for n, lock in enumerate(locks)]
            results = together(calls)
            won = [result for result in results if isinstance(result, Lease)]
            lost = [result for result in results if isinstance(result, Unavailable)]
            assert (len(won), len(lost)) == (1, len(locks) - 1), results
            assert won[0].token > highest
            highest = won[0].token
            locks[results.index(won[0])].release(won[0])

    def take(self, lock: Lock, name: str = "table", *, holder: str = "one") -> Lease:
        """Take a lock for the usual time."""
        return lock.acquire(name, holder=holder, seconds=self.lease_seconds)

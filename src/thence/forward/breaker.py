"""Counts failures in a row, and says how long to wait after each. It decides; it does not wait.

Delays have full jitter: anything between the shortest and a ceiling that doubles, so that many forwarders whose
destination comes back do not all knock at once.
"""

from __future__ import annotations

import random
from typing import Literal

from thence.core.errors import OutcomeUnknown
from thence.forward.failure import Busy, Misconfigured
from thence.forward.policy import Policy

State = Literal["closed", "open", "half_open"]
_DOUBLINGS = 40


class Breaker:
    """Closed: batches are sent. Open: nothing is. Half open: one event is, as a probe."""

    def __init__(self, policy: Policy, chance: random.Random | None = None) -> None:
        self.failures = 0
        self.is_waiting = False
        self._policy = policy
        self._chance = chance or random.Random()  # noqa: S311 - jitter is no secret

    @property
    def state(self) -> State:
        """What is done at present."""
        if not self.probes_only:
            return "closed"
        return "open" if self.is_waiting else "half_open"

    @property
    def probes_only(self) -> bool:
        """Whether a single event is sent instead of a batch."""
        return self.failures >= self._policy.breaker_failures

    def succeed(self) -> None:
        """Something was delivered."""
        self.failures = 0

    def fail(self, error: Exception | None) -> float:
        """Nothing was delivered; how many seconds to wait. None stands for a refusal."""
        self.failures += 1
        if isinstance(error, OutcomeUnknown) and self.failures == 1:
            return 0.0
        if error is None or isinstance(error, Misconfigured):
            return self._policy.blocked_delay_seconds
        asked = error.retry_after_seconds if isinstance(error, Busy) else None
        return max(self._jitter(), min(asked or 0.0, self._policy.longest_retry_after_seconds))

    def _jitter(self) -> float:
        first, longest = self._policy.first_delay_seconds, self._policy.longest_delay_seconds
        ceiling = min(longest, first * 2 ** min(self.failures, _DOUBLINGS))
        return max(first, self._chance.uniform(0.0, ceiling))

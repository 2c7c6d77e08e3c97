"""What a destination's failure tells the forwarder besides that it failed: when to come back, and who must act.

Both are `Unavailable`: nothing arrived, and nothing is passed over.
"""

from __future__ import annotations

from thence.core.errors import Unavailable


class Busy(Unavailable):
    """The destination asks to be left alone for a while."""

    retry_after_seconds: float | None = None

    def after(self, seconds: float | None) -> Busy:
        """The same error with the time that the destination named."""
        self.retry_after_seconds = seconds
        return self


class Misconfigured(Unavailable):
    """Waiting alone will not help: a key, an address or a certificate is wrong. It is tried again, slowly."""

from __future__ import annotations

import secrets

from tests.faults import forward


def test_no_event_is_lost_or_overtaken_when_a_forwarding_process_is_killed() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    figures = forward.run(**forward.SHORT, seed=seed)
    assert figures["kills"] == 20

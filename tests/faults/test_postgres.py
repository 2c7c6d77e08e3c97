from __future__ import annotations

import secrets

from tests.faults import postgres


def test_no_committed_row_is_lost_when_postgres_or_its_owner_is_killed() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    figures = postgres.run(**postgres.SHORT, seed=seed)
    assert figures["recovered"] == figures["postgres_kills"] == 3
    assert figures["takeovers"] == figures["owner_kills"] == 2

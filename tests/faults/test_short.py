"""The short form of every fault run that needs nothing but this package. The seed is printed when one fails."""

from __future__ import annotations

import secrets

from tests.faults import power


def test_power_loss_costs_nothing_that_was_acknowledged() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    assert power.run(**power.SHORT, seed=seed)["acknowledged_lost"] == 0

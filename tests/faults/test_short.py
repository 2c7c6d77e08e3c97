"""The short form of every fault run that needs nothing but this package. The seed is printed when one fails."""

from __future__ import annotations

import secrets

from tests.faults import door, journal, power


def test_power_loss_costs_nothing_that_was_acknowledged() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    assert power.run(**power.SHORT, seed=seed)["acknowledged_lost"] == 0


def test_a_journal_stands_kills_and_system_calls_that_fail() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    figures = journal.run(**journal.SHORT, seed=seed)
    assert figures["acknowledged_lost"] == 0
    assert figures["syscall_faults"]


def test_a_sidecar_that_is_killed_under_load_loses_nothing_that_it_acknowledged() -> None:
    seed = secrets.randbelow(1 << 32)
    print(f"seed {seed}")
    figures = door.run(**door.SHORT, seed=seed)
    assert figures["acknowledged_lost"] == 0
    assert figures["out_of_order"] == 0

"""Seeded faults: every one must have its line in the source, or nothing is tried."""

from __future__ import annotations

from experiments.mutants import MUTANTS, check_places


def test_every_fault_has_its_line() -> None:
    check_places(MUTANTS)

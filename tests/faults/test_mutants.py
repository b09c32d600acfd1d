"""The table of seeded faults fits the source: every line exists once, and so do the tests."""

from tests.faults.mutants import FAULTS, check_faults


def test_every_seeded_fault_has_its_line() -> None:
    check_faults(FAULTS)

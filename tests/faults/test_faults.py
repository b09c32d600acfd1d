"""Killed commands, damaged inputs, awkward tables and unusual exports: a sample of each study."""

import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import awkward, decisions, exports, mangled
from tests.faults.kills import COMMANDS, study, victims, write_inputs
from tests.helpers.sizes import usually

pytestmark = pytest.mark.slow


def test_killed_commands_can_be_run_again() -> None:
    kills, crashes = range(usually(12, verify=120)), range(usually(4, verify=50))
    print(f"seeds {kills} of kills, {crashes} of replacements")
    outcomes = study(kills, crashes)
    assert len(outcomes) == len(kills) + len(crashes)
    assert [str(outcome) for outcome in outcomes if outcome.fault] == []
    # Some commands were killed in the middle of their work.
    assert {outcome.code for outcome in outcomes} >= {-9, 130, 143}


@pytest.mark.parametrize("number", usually([signal.SIGTERM], verify=[signal.SIGTERM, signal.SIGINT]))
def test_signal_after_the_result_changes_nothing(number: int, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    commands = {**COMMANDS, "export": ["export", "fitted", "-o", "out.csv"]}
    with victims() as program:
        assert program.run([*COMMANDS["fit"][:-1], "fitted"], tmp_path, at=None) == {}
        for name, command in commands.items():
            folders = tmp_path / "counted", tmp_path / "stopped"
            for folder in folders:
                folder.mkdir(exist_ok=True)
                write_inputs(folder)
                (folder / "fitted").symlink_to(tmp_path / "fitted")
            n = program.run(command, folders[0], at=-1)["n"]
            # The last file operation of a command removes temporary files, after its result is complete.
            result = program.run(command, folders[1], at=n, number=number)
            assert (result["code"], "Wrote" in result["output"]) == (0, True), (name, result)
            for folder in folders:
                shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("saved", "seeds"), [(False, range(usually(200, verify=10_000))), (True, range(usually(40, verify=500)))]
)
def test_damaged_inputs_are_refused_or_read_correctly(saved: bool, seeds: range) -> None:
    print(f"seeds {seeds}")
    endings, faults = mangled.study(seeds, saved)
    assert faults == []
    assert endings.keys() <= {"refused", "read"}
    assert endings["refused"] > len(seeds) / 4


def test_awkward_tables_are_read_right_or_asked_about(tmp_path: Path) -> None:
    endings = {table.name: awkward.ending(table, tmp_path) for table in awkward.TABLES}
    assert len(endings) == len(awkward.TABLES) > 200
    assert {name: end for name, end in endings.items() if end[0] == "wrong"} == {}
    stated = Counter(end[0] for end in endings.values())
    assert stated["right"] >= 120
    # of several labels by one annotator, of texts, and of rows that may be headers or totals
    assert stated["noted"] <= 15


def test_unusual_exports_are_read_correctly() -> None:
    seeds = range(usually(51, verify=300))
    print(f"seeds {seeds}")
    assert list(filter(None, map(exports.fault, seeds))) == []


def test_confirmed_decisions_outlive_the_server(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    n_confirmed, n_unanswered, faults = decisions.study(usually(3, verify=100), tmp_path)
    assert faults == []
    assert n_confirmed > 10
    assert n_unanswered > 0  # some kills came in the middle

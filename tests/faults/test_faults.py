"""Killed commands, run again, end as if nobody had disturbed them; a result is never a mixture of two."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from faults import exports, mangled
from faults.kills import COMMANDS, study, victims, write_inputs
from sizes import usually

pytestmark = pytest.mark.slow


def test_a_killed_command_run_again_ends_as_if_undisturbed() -> None:
    kills, crashes = range(usually(12, verify=120)), range(usually(4, verify=50))
    print(f"seeds {kills} of kills, {crashes} of replacements")
    outcomes = study(kills, crashes)
    assert len(outcomes) == len(kills) + len(crashes)
    assert [str(one) for one in outcomes if one.fault] == []
    # The study is none where nothing was killed, or nothing in the middle of its work.
    assert {one.code for one in outcomes} >= {-9, 130, 143}


@pytest.mark.parametrize("number", usually([signal.SIGTERM], verify=[signal.SIGTERM, signal.SIGINT]))
def test_once_a_result_has_its_name_a_signal_changes_nothing(number: int, tmp_path: Path) -> None:
    write_inputs(tmp_path)
    commands = {**COMMANDS, "export": ["export", "fitted", "-o", "out.csv"]}
    with victims() as program:
        assert program.run([*COMMANDS["fit"][:-1], "fitted"], tmp_path, at=None) == {}
        for name, words in commands.items():
            places = tmp_path / "counted", tmp_path / "stopped"
            for place in places:
                place.mkdir(exist_ok=True)
                write_inputs(place)
                (place / "fitted").symlink_to(tmp_path / "fitted")
            n = program.run(words, places[0], at=-1)["n"]
            # The last operation of a command tidies up behind its result.
            told = program.run(words, places[1], at=n, number=number)
            assert (told["code"], "Wrote" in told["said"]) == (0, True), (name, told)
            for place in places:
                shutil.rmtree(place)


def test_mangled_inputs_are_refused_in_one_line_or_read_soundly() -> None:
    seeds = range(usually(200, verify=10_000))
    print(f"seeds {seeds}")
    ended, faults = mangled.study(seeds)
    assert faults == []
    assert ended.keys() == {"refused", "read"}
    assert ended["refused"] > len(seeds) / 4


def test_awkward_exports_are_read_as_they_were_written_and_columns_are_told() -> None:
    seeds = range(usually(51, verify=300))
    print(f"seeds {seeds}")
    assert [told for told in map(exports.fault, seeds) if told] == []

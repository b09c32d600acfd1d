"""What a command may use: options that reach the library, refusals, and a fit that was killed and goes on."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from cli_help import COMMANDS, failure, run
from dissensus import engine
from dissensus.engine import ConvergenceMonitor
from dissensus.errors import DataError
from dissensus.large import resources as resourcing

ITERATIONS = 12
FIT = ["--model", "pgm", "-k", "4", "-l", "3", "--test-size", "0", "--no-report"]
FIT += ["-s", f"max_iter={ITERATIONS}", "-s", "tol=0"]

# The program, which kills itself when the fit has noted so many iterations.
VICTIM = """
import os, signal, sys
from dissensus.cli import main
from dissensus.engine import ConvergenceMonitor

left = int(sys.argv.pop(1))
report = ConvergenceMonitor.report

def dying(monitor, *given):
    global left
    stops = report(monitor, *given)
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    return stops

ConvergenceMonitor.report = dying
main()
"""


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("resources") / "crowd"
    run("simulate", "--n-items", 150, "--seed", 2, "-o", place)
    return place / "annotations.csv"


def results(folder: Path) -> dict[str, bytes]:
    """What must not hang on how it was computed."""
    return {name: (folder / name).read_bytes() for name in ("labels.csv", "model.safetensors")}


# ---- options ------------------------------------------------------------------------------------------


def test_every_option_reaches_the_library(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    @contextmanager
    def noted(**given: Any) -> Iterator[resourcing.Resources]:
        seen.update(given)
        yield resourcing.Resources()

    monkeypatch.setattr(resourcing, "resources", noted)
    words = ["--cluster", "tls://host:1", "--memory", "3GB", "--scratch", "s", "--checkpoint", "k"]
    run("fit", votes, *FIT, *words, "-j", "2", "-o", tmp_path / "out")
    assert seen == {
        "cluster": "tls://host:1",
        "n_workers": 2,
        "memory": "3GB",
        "scratch": Path("s"),
        "checkpoint": Path("k"),
    }


def test_every_core_is_used_unless_fewer_are_asked_for() -> None:
    for name, command in COMMANDS.items():
        jobs = next((one for one in command.params if one.name == "jobs"), None)
        assert jobs is None or jobs.default == -1, name


@pytest.mark.parametrize("command", ["fit", "select"])
def test_a_local_cluster_has_a_worker_a_core(
    command: str, votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    @contextmanager
    def noted(**given: Any) -> Iterator[resourcing.Resources]:
        seen.update(given)
        raise DataError("far enough")
        yield

    monkeypatch.setattr(resourcing, "resources", noted)
    assert failure(command, votes, "--cluster", "local", "-o", tmp_path / "out") == "far enough"
    assert (seen["cluster"], seen["n_workers"]) == ("local", -1)


def test_a_search_says_what_its_cluster_shares(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, Any] = {}

    @contextmanager
    def noted(**given: Any) -> Iterator[resourcing.Resources]:
        seen.update(given)
        raise DataError("far enough")
        yield

    monkeypatch.setattr(resourcing, "resources", noted)
    words = ["--cluster", "tcp://host:1", "--scratch", "s", "-o", tmp_path / "out"]
    assert failure("select", votes, *words) == "far enough"
    assert (seen["cluster"], seen["scratch"]) == ("tcp://host:1", Path("s"))


@pytest.mark.parametrize("command", ["fit", "select"])
def test_a_cluster_that_cannot_be_is_refused(command: str, votes: Path, tmp_path: Path) -> None:
    line = "nonsense: no scheduler answers there"
    assert line in failure(command, votes, "--cluster", "nonsense", "-o", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_bad_values_are_one_line(votes: Path, tmp_path: Path) -> None:
    line = failure("fit", votes, *FIT, "--memory", "lots", "-o", tmp_path / "out")
    assert line.startswith("--memory must be a size such as '2GB'")
    assert list(tmp_path.iterdir()) == []


def test_too_little_memory_is_refused_with_what_is_needed(votes: Path, tmp_path: Path) -> None:
    line = failure("fit", votes, *FIT, "--memory", "20MB", "-o", tmp_path / "out")
    assert "of memory at least, and 20MB are allowed" in line
    assert "--memory" in line


def test_hiding_labels_does_not_break_the_limit_in_silence(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.HIDING_BYTES", 1_000_000)
    hiding = [word if word != "0" else "0.2" for word in FIT[:8]]
    line = failure("fit", votes, *hiding, "--memory", "1GB", "-o", tmp_path / "out")
    assert "hiding labels to judge a model by takes 750MB of memory beside the fit" in line
    assert "--test-size 0" in line
    run("fit", votes, *FIT, "--memory", "1GB", "-o", tmp_path / "out")


def test_the_page_does_not_break_the_limit_either(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissensus.workflow.runs.PAGE_BYTES", 1_000_000)
    words = [word for word in FIT if word != "--no-report"]
    done = run("fit", votes, *words, "--memory", "900MB", "-o", tmp_path / "out")
    assert "no page (it takes some 1GB of memory, and 900MB are allowed)" in done.stderr
    assert not (tmp_path / "out" / "report.html").exists()
    run("fit", votes, *words, "--memory", "1GB", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "report.html").exists()


def test_memory_and_disk_do_not_reach_the_result(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissensus.models.base.PROCESS_BYTES", 1_000_000)
    run("fit", votes, *FIT, "-o", tmp_path / "plain")
    needed = re.search(r"needs (\S+) of memory", failure("fit", votes, *FIT, "--memory", "1MB"))
    assert needed is not None
    scratch = tmp_path / "scratch"
    run("fit", votes, *FIT, "--memory", needed[1], "--scratch", scratch, "-o", tmp_path / "limited")
    assert results(tmp_path / "limited") == results(tmp_path / "plain")
    assert list(scratch.iterdir()) == []  # messages were there, and are gone


# ---- a cluster ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.cluster
def test_processes_give_the_bits_of_threads(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 100)
    assert len(engine.cut_blocks(ds.read_annotations(votes))) > 5
    run("fit", votes, *FIT, "-j", "2", "-o", tmp_path / "threads")
    run("fit", votes, *FIT, "-j", "2", "--cluster", "local", "-o", tmp_path / "processes")
    assert results(tmp_path / "processes") == results(tmp_path / "threads")


# ---- stopped, and going on ----------------------------------------------------------------------------


def program(moment: int, *words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", VICTIM, str(moment), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_a_fit_killed_at_any_moment_goes_on_with_the_same_bits(votes: Path, tmp_path: Path) -> None:
    run("fit", votes, *FIT, "-o", tmp_path / "whole")
    keep, out = tmp_path / "keep", tmp_path / "out"
    keep.mkdir()
    (keep / "notes.txt").write_text("mine")
    words = ["fit", votes, *FIT, "--checkpoint", keep, "-o", out]
    for moment in (6, 2):  # after 6 iterations, of which 5 are kept; then after the 5th again and 1 more
        assert program(moment, *words).returncode == -signal.SIGKILL
        assert not out.exists()
        assert len(list(keep.iterdir())) == 2
    # Five iterations are kept, and the fifth is done again: a fit that began anew would die of the ninth.
    done = program(9, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert results(out) == results(tmp_path / "whole")
    assert [file.name for file in keep.iterdir()] == ["notes.txt"]


def test_a_fit_killed_while_it_writes_goes_on_too(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, out = tmp_path / "keep", tmp_path / "out"
    words = ["fit", votes, *FIT, "--checkpoint", keep, "-o", out]

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("dissensus.tables.arrays._write_index", full)
        assert "no space left on device" in failure(*words)
    assert not out.exists()
    assert len(list(keep.iterdir())) == 1
    run(*words)
    assert list(keep.iterdir()) == []


def test_an_interrupted_fit_says_where_it_goes_on(
    votes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = ConvergenceMonitor.report

    def interrupted(monitor: ConvergenceMonitor, *given: Any) -> bool:
        stops = report(monitor, *given)
        if len(monitor.trace) == moment:
            raise KeyboardInterrupt
        return stops

    monkeypatch.setattr(ConvergenceMonitor, "report", interrupted)
    words = ["fit", votes, *FIT, "--checkpoint", tmp_path / "keep", "-o", tmp_path / "out"]
    moment = 1  # before the first checkpoint
    assert failure(*words, code=130) == "interrupted; nothing was written"
    moment = 6
    line = failure(*words, code=130)
    assert line == f"interrupted; {tmp_path / 'keep'} keeps the fit: run the same again to go on"

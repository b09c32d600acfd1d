"""The program in its own process: exit codes, pipes, signals and a terminal."""

import os
import re
import shlex
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pexpect
import pytest

from tests.helpers.cli import tree, write_simulation

pytestmark = pytest.mark.slow

PROGRAM = [sys.executable, "-m", "dissensus"]
HEAVY = {"numpy", "scipy", "pandas", "pyarrow", "narwhals", "sklearn", "torch", "plotly", "dask"}
SHOWN = ["--model", "pgm", "-k", "6", "-l", "4"]  # slow enough for its progress to be shown
# A fit that would take minutes: no tolerance, many iterations, many restarts.
ENDLESS = ["--model", "fmm", "-k", "60", "-s", "n_restarts=200", "-s", "tol=0", "-s", "max_iter=100000"]
ENDLESS_DEFAULT = ["-s", "n_sweeps=1000000"]


def start(*words: Any, cwd: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    settings = {"capture_output": True, "text": True, "timeout": 300} | settings
    return subprocess.run([*PROGRAM, *map(str, words)], cwd=cwd, check=False, **settings)


@pytest.fixture(scope="module")
def votes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Labels of enough items for progress to be shown."""
    return write_simulation(tmp_path_factory.mktemp("process") / "crowd", 1500) / "annotations.csv"


@pytest.mark.parametrize("words", [["fit", "--help"], []])
def test_help_loads_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "dissensus", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "dissensus" in loaded
    assert loaded & HEAVY == set()


def test_pipe_gets_plain_text(votes: Path, tmp_path: Path) -> None:
    done = start("fit", votes, "--model", "fmm", "-k", 4, "--no-report", "-o", "refined", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    control = {letter for letter in done.stdout if unicodedata.category(letter) == "Cc"}
    assert control == {"\n"}


@pytest.mark.parametrize(
    ("words", "code"), [(["--version"], 0), (["fit", "nothing.csv"], 2), (["fit", "--nothing"], 2)]
)
def test_exit_codes(words: list[str], code: int, tmp_path: Path) -> None:
    done = start(*words, cwd=tmp_path)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == (0 if code == 0 else 1)
    assert tree(tmp_path) == {}


def test_closed_pipe_is_no_error(votes: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        streams = {"capture_output": False, "stdout": closed, "stderr": subprocess.PIPE}
        done = start("describe", votes, cwd=tmp_path, **streams)
    assert done.stderr == ""


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("closed", [False, True], ids=["full", "closed"])
@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (("describe",), 2, "check standard output"),
        (
            ("fit", "--model", "majority", "-o", "run"),
            0,
            "note: the result was written, but standard output was not",
        ),
    ],
    ids=["describe", "fit"],
)
def test_the_exit_code_says_whether_a_result_was_written(
    votes: Path, tmp_path: Path, command: tuple[str, ...], code: int, message: str, closed: bool
) -> None:
    program = shlex.join([*PROGRAM, command[0], str(votes), *command[1:]])
    line = f"{program} {'>&-' if closed else '> /dev/full'}"
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "run" / "labels.csv").exists() == (command[0] == "fit")


def test_output_closed_early_and_both_outputs_closed(votes: Path, tmp_path: Path) -> None:
    program = shlex.join([*PROGRAM, "describe", str(votes)])
    for line, code in ((f"({program}; echo $? >&2) | true", "141"), (f"{program} >&- 2>&-; echo $? >&2", "")):
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr
        assert done.stderr.strip() == code or not code


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ENCODINGS = [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "cp1252"}, C_LOCALE]


@pytest.mark.parametrize("settings", ENCODINGS)
def test_characters_that_cannot_be_shown_are_replaced(
    votes: Path, tmp_path: Path, settings: dict[str, str]
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    place: dict[str, Any] = {"env": environment | settings, "cwd": tmp_path}
    done = subprocess.run([*PROGRAM, "describe", str(votes)], capture_output=True, timeout=120, **place)
    assert done.returncode == 0, done.stderr
    assert b"Krippendorff" in done.stdout
    assert b"Krippendorff's \xce\xb1" not in done.stdout


def terminal(*words: Any, cwd: Path) -> Any:
    """Start the program on a terminal of 100 columns."""
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI")}
    command = [*PROGRAM, *map(str, words)]
    settings = {"env": environment | {"TERM": "xterm-256color"}, "encoding": "utf-8", "timeout": 180}
    return pexpect.spawn(command[0], command[1:], cwd=str(cwd), dimensions=(30, 100), **settings)


def seen(text: str) -> str:
    """Remove escape sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_json_on_a_terminal_is_plain(votes: Path, tmp_path: Path) -> None:
    child = terminal("info", "fmm", "--json", cwd=tmp_path)
    child.expect(pexpect.EOF)
    assert "\x1b" not in child.before
    child.close()


def test_terminal_shows_progress_and_then_the_result(votes: Path, tmp_path: Path) -> None:
    child = terminal("fit", votes, *SHOWN, "-o", "refined", cwd=tmp_path)
    child.expect("reading annotations.csv")
    child.expect("fitting ")
    child.expect(r"\d+%")
    # the bar is removed and the cursor shown again before the result
    child.expect(re.escape("\x1b[?25h"))
    child.expect(pexpect.EOF)
    assert "Wrote refined/: annotations.parquet, annotators.csv, labels.csv" in seen(child.before)
    child.close()
    assert child.exitstatus == 0


@pytest.mark.parametrize("words", [ENDLESS, ENDLESS_DEFAULT], ids=["fmm", "default"])
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped_fit_leaves_nothing_behind(
    votes: Path, tmp_path: Path, sent: signal.Signals, code: int, words: list[str]
) -> None:
    child = terminal("fit", votes, *words, "-o", "refined", cwd=tmp_path)
    child.expect("fitting ")
    child.kill(sent)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == code
    assert "Traceback" not in child.before
    assert ("interrupted; nothing was written" in child.before) == (code == 130)
    assert list(tmp_path.iterdir()) == []


def test_stopped_search_saves_finished_trials(votes: Path, tmp_path: Path) -> None:
    child = terminal("select", votes, "-k", "2:9", "-l", "2:9", "-j", "2", "-o", "search", cwd=tmp_path)
    child.expect(" left")
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 130
    assert "Traceback" not in child.before
    expected = "interrupted; finished trials are saved in search; run the same command to resume"
    assert expected in " ".join(child.before.split())
    assert {file.name for file in (tmp_path / "search").iterdir()} == {"search.jsonl", "summary.json"}


def test_completion_of_commands_and_models(tmp_path: Path) -> None:
    program = "import sys; sys.argv[0] = 'dissensus'; from dissensus.cli import main; main()"
    for words, expected in (("dissensus des", "describe"), ("dissensus fit --model f", "fmm")):
        line = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        environment = os.environ | line | {"_DISSENSUS_COMPLETE": "complete_bash"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=False)
        assert done.stdout.decode().split() == [expected]

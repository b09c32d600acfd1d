"""Ctrl-C at any moment of a command: exit code 130 and one line, without a traceback.

The child sends itself the signal at a chosen import or at its exit, so that nothing depends on its speed.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SCRIPT = PROJECT["scripts"]["dissensus"]
PROGRAMS = {
    "dissensus": f"from {SCRIPT.replace(':', ' import ')}; main()",
    "python -m dissensus": "import runpy; runpy.run_module('dissensus', run_name='__main__', alter_sys=True)",
}
# Sends SIGINT at the import number AT (or of the module AT) after the first line of the program.
HEAD = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
AT, HOW = {at!r}, {how!r}

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass

class Callback:
    def __del__(self):
        interrupt()

def in_a_class():
    class Name:
        def __set_name__(self, owner, name):
            interrupt()
    type("Owner", (), {{"name": Name()}})  # Python 3.11 raises RuntimeError from the interrupt

class Imports:
    n = None
    def find_spec(self, name, path=None, target=None):
        if name == "dissensus.__main__":
            self.n = -1
        elif self.n is not None:
            self.n += 1
            if AT in (self.n, name):
                {{"now": interrupt, "callback": Callback, "class": in_a_class,
                 "exit": lambda: atexit.register(interrupt)}}[HOW]()

sys.meta_path.insert(0, Imports())
sys.argv = ["dissensus", "describe", "votes.csv"]
"""


def interrupted(program: str, folder: Path, at: int | str, how: str) -> tuple[int, str]:
    """Return the exit code and standard error of a command that interrupts itself."""
    (folder / "votes.csv").write_text("item,annotator,label\na,x,yes\na,y,no\nb,x,yes\n", encoding="utf-8")
    child = [sys.executable, "-c", HEAD.format(at=at, how=how) + PROGRAMS[program]]
    done = subprocess.run(child, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("at", [0, 3, 30, 150, "typer", "dissensus.cli.inspection", "numpy", "pyarrow"])
def test_interrupt_during_imports(program: str, at: int | str, tmp_path: Path) -> None:
    assert interrupted(program, tmp_path, at, "now") == (130, "dissensus: interrupted; nothing was written\n")


@pytest.mark.parametrize(("at", "how"), [("numpy", "callback"), ("numpy", "class"), ("numpy", "exit")])
def test_interrupt_in_a_callback_and_at_the_exit(at: str, how: str, tmp_path: Path) -> None:
    code, message = interrupted("dissensus", tmp_path, at, how)
    assert code == 130
    assert message.splitlines()[-1] == "dissensus: interrupted; nothing was written"
    assert "Traceback" not in message
    assert "ignored" not in message


def test_importing_the_library_leaves_signals_alone() -> None:
    check = (
        "from signal import *; before = getsignal(2), getsignal(15); import dissensus.cli, dissensus.__main__"
    )
    check += "; assert (getsignal(2), getsignal(15)) == before"
    subprocess.run([sys.executable, "-c", check], check=True)

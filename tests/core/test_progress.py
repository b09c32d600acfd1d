"""Progress: one meaning of the parameter, one bar, one clock."""

import io
import sys
import threading
import time
from types import ModuleType

import pytest

import dissensus as ds
from dissensus import progress
from dissensus.progress import ShowProgress, counted, shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "asked", "drawn"),
    [(True, None, True), (True, True, True), (True, False, False), (False, None, False)],
)
def test_a_bar_where_it_is_asked_for(
    terminal: bool, asked: bool | None, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with shown(asked) as tell:
        tell("half of it \x07", 0.5)
    assert ("half of it" in screen.getvalue() and "50%" in screen.getvalue()) == drawn
    assert "\x07" not in screen.getvalue()


def test_a_bar_inside_another_is_a_line_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    for _ in range(2):  # the second time there is none left of the first
        with shown() as whole:
            whole("the whole", 0.25)
            with shown() as part:
                part("a part", 0.9)
    assert "25%" in screen.getvalue()
    assert "  a part" in screen.getvalue()
    assert "90%" not in screen.getvalue()
    assert screen.getvalue().count("\x1b[?25h") == 2  # the cursor is given back at the end of the whole


def test_a_function_is_told() -> None:
    told: list[tuple[str, float]] = []
    with counted("steps", 4, lambda what, share: told.append((what, share))) as advance:
        advance(1)
        advance(3)
    assert [share for _, share in told] == [0.25, 1.0]
    assert told[1][0] == "steps, 0 s left"
    with counted("nothing", 0, lambda *_: pytest.fail("there is nothing to tell")):
        pass


# ---- in a pipe and in a notebook ------------------------------------------------------------------------


def test_a_pipe_gets_a_line_now_and_then_and_none_about_short_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with shown() as tell:
        tell("short work", 0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    lines = ""
    with shown() as tell:
        tell("fitting \x07it", 0.01)
        with shown() as part:
            part("iteration 3 of at most 12, at most 9 s left", 0.25)
            while lines.count("\n") < 2:
                lines += capsys.readouterr().err
    assert lines.splitlines()[-1] == (
        "dissensus: fitting  it, 1% done; iteration 3 of at most 12, at most 9 s left"
    )
    assert "progress" not in [thread.name for thread in threading.enumerate()]


def test_a_notebook_has_one_output_that_changes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[dict[str, str], bool]] = []

    class ZMQInteractiveShell:
        pass

    def put(page: dict[str, str], *, raw: bool, display_id: str, update: bool) -> None:
        assert raw
        drawn.append((page, update))

    kernel, display = ModuleType("IPython"), ModuleType("IPython.display")
    monkeypatch.setattr(kernel, "get_ipython", type("Kernel", (ZMQInteractiveShell,), {}), raising=False)
    monkeypatch.setattr(display, "display", put, raising=False)
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    monkeypatch.setattr(progress, "PAGE_SECONDS", 0.01)
    with shown() as tell:
        tell("a < b", 0.5)
        while len(drawn) < 3:
            time.sleep(0.01)
    assert [update for _, update in drawn[:2]] == [False, True]
    assert drawn[2][0]["text/plain"].startswith("a < b, 50% done")
    assert drawn[2][0]["text/html"].startswith('<progress max="1" value="0.500"></progress> a &lt; b')
    assert drawn[-1] == ({"text/plain": "", "text/html": ""}, True)


@pytest.mark.parametrize("asked", [False, lambda what, share: None])
def test_work_inside_is_silent_where_the_caller_wants_silence_or_is_told(
    asked: ShowProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with shown(asked), shown() as tell:
        tell("inside", 0.5)
    assert screen.getvalue() == ""
    with shown() as tell:
        tell("afterwards", 0.5)
    assert "afterwards" in screen.getvalue()


@pytest.mark.parametrize(("n_jobs", "seconds", "drawn"), [(1, 0.0, True), (2, 0.0, True), (2, 60.0, False)])
def test_a_fit_that_takes_long_shows_itself(
    n_jobs: int, seconds: float, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("dissensus.engine.SECONDS_BEFORE_PROGRESS", seconds)
    ds.HPGM(n_jobs=n_jobs, n_chains=2, n_sweeps=10).fit(ds.simulate(n_items=20, seed=0).annotations)
    assert ("HPGM: iteration 1 of at most 20" in screen.getvalue()) == drawn
    assert drawn or not screen.getvalue()

"""Progress: one meaning of the parameter, one bar, one clock."""

from __future__ import annotations

import io
import sys

import pytest

from dissensus.progress import Clock, counted, in_words, shown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("terminal", "progress", "drawn"),
    [(True, None, True), (True, True, True), (True, False, False), (False, None, False)],
)
def test_a_bar_where_it_is_asked_for(
    terminal: bool, progress: bool | None, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with shown(progress) as tell:
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


def test_the_clock_counts_at_the_pace_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [100.0], []
    monkeypatch.setattr("dissensus.progress.time.perf_counter", lambda: now[0])
    clock = Clock(lambda what, share: told.append((what, share)), 10.0)
    now[0] = 104.0
    clock.tick(2.0, "first")  # 2 of 10 in 4 s: 16 s for the other 8
    clock.expect(2.0)
    now[0] = 106.0
    clock.tick(1.0, "second")  # 3 in 6 s: 2 s for the last
    assert told == [("first, 16 s left", 0.2), ("second, 2 s left", 0.75)]


def test_times_in_words() -> None:
    found = [in_words(s) for s in (0.4, 89, 90, 5399, 5400, 12600)]
    assert found == ["0 s", "89 s", "2 min", "90 min", "1.5 h", "3.5 h"]

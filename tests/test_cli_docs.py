"""docs/cli.md and every command's help, held against the commands themselves."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli_help import COMMANDS, run
from sizes import usually

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cli.md"


def section(title: str) -> str:
    """The part of the page under one heading."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def options(command: str) -> set[str]:
    """Every long option of a command."""
    parameters = COMMANDS[command].params
    names = {name for one in parameters for name in (*one.opts, *one.secondary_opts)}
    return {name for name in names if name.startswith("--")} - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_documented_with_every_option(command: str) -> None:
    text = section(f"dissensus {command}")
    if "#reading-a-file" in text:
        text += section("Reading a file")
    if "as for [fit]" in text:
        text += section("dissensus fit")
    written = set(re.findall(r"`(--[a-z-]+)", text))
    assert options(command) <= written


@pytest.mark.parametrize("command", COMMANDS)
def test_no_option_is_documented_that_does_not_exist(command: str) -> None:
    everywhere = {name for known in COMMANDS for name in options(known)} | {"--debug", "--help"}
    assert set(re.findall(r"`(--[a-z-]+)", section(f"dissensus {command}"))) <= everywhere


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_has_examples_that_parse(command: str) -> None:
    text = run(command, "--help").stdout
    assert "Examples" in text
    assert len(text.splitlines()) <= 80  # two screens of 40 lines
    assert max(map(len, text.splitlines())) <= 100
    assert f"dissensus {command}" in text.partition("Examples")[2]
    lines = [line for line in COMMANDS[command].epilog.splitlines() if line.startswith("  dissensus ")]
    assert lines
    for line in lines:
        program, name, *words = shlex.split(line)
        assert (program, name) == ("dissensus", command)
        COMMANDS[command].make_context(name, words)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_parameter_has_a_word_of_help(command: str) -> None:
    assert all(parameter.help for parameter in COMMANDS[command].params)


# Commands that take long and are run by other tests; ``make verify`` runs them here too.
ELSEWHERE = {"demo": "test_readme"}
SHORT = ["--model", "hpgm", "-s", "n_chains=2", "-s", "n_sweeps=20"]
# What sampling and searching takes is not what the page is about: fewer items, fewer settings.
SMALLER = {
    "annotators crowd/": "annotators few/",
    "-k 2:4 -l 2,3 --repeats 2": "-k 2,3 -l 2 --repeats 1",
    "-k 1,2,4,8 --grid alpha=1.5,2 --repeats 2": "-k 1,2 --grid alpha=1.5,2 --repeats 1",
}


def sessions() -> list[tuple[str, list[str]]]:
    """The page's ``$`` lines in order, each with the lines of output shown under it."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line.removeprefix("$ "), []))
            else:
                found[-1][1].append(line)
    return found


@pytest.mark.slow
@pytest.mark.no_cover
def test_every_line_of_the_page_runs_and_shows_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = sessions()
    assert {shlex.split(line)[1] for line, _ in lines} == set(COMMANDS)
    left_out = usually(set(ELSEWHERE), verify=set[str]())
    run("simulate", "--n-items", 20, "-o", "few")
    for line, shown in lines:
        if shlex.split(line)[1] in left_out:
            continue
        chooses = " fit " in line and "--model" not in line
        # Sampling takes as long as all other lines together: usually chains are short.
        for words, fewer in usually(SMALLER, verify={}).items():
            line = line.replace(words, fewer)
        words = [*shlex.split(line)[1:], *(usually(SHORT, verify=[]) if chooses else [])]
        output = run(*words).stdout.splitlines()
        assert set(shown) <= set(output), line

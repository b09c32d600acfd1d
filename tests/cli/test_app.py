"""Help, messages, errors and exit codes, which all commands share."""

import importlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import dissensus
from dissensus._version import __version__
from dissensus.cli.app import shell_spelling
from dissensus.cli.demo import write_crowd
from dissensus.datasets.comments import draw_crowd
from tests.helpers.cli import COMMANDS, failure, run, tree, write_simulation, write_votes
from tests.helpers.sizes import usually

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


# ---- help and documentation ---------------------------------------------------------------------------


def section(title: str) -> str:
    """Return the part of docs/cli.md under a heading."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def options(command: str) -> set[str]:
    """Return every long option of a command."""
    names = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    return {name for name in names if name.startswith("--")} - {"--help"}


@pytest.mark.parametrize("command", COMMANDS)
def test_docs_name_every_option_and_no_other(command: str) -> None:
    text = section(f"dissensus {command}")
    everywhere = {name for other in COMMANDS for name in options(other)} | {"--debug", "--help"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) <= everywhere
    if "#reading-a-file" in text:
        text += section("Reading a file")
    if "as for [fit]" in text:
        text += section("dissensus fit")
    assert options(command) <= set(re.findall(r"`(--[a-z-]+)", text))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_parse(command: str) -> None:
    text = run(command, "--help").stdout
    assert len(text.splitlines()) <= 80  # two screens of 40 lines
    assert max(map(len, text.splitlines())) <= 100
    assert f"dissensus {command}" in text.partition("Examples")[2]
    assert all(parameter.help for parameter in COMMANDS[command].params)
    lines = [line for line in COMMANDS[command].epilog.splitlines() if line.startswith("  dissensus ")]
    assert lines
    for line in lines:
        program, name, *words = shlex.split(line)
        assert (program, name) == ("dissensus", command)
        COMMANDS[command].make_context(name, words)


# ``make verify`` runs the page as it is; otherwise chains, crowds and grids are smaller.
SHORT = ["--model", "hpgm", "-s", "n_chains=2", "-s", "n_sweeps=20"]
SMALLER = {
    "annotators demo-output/crowd/": "annotators few/",
    "-k 2:4 -l 2,3 --repeats 2": "-k 2,3 -l 2 --repeats 1",
    "-k 1,2,4,8 --grid alpha=1.5,2 --repeats 2": "-k 1,2 --grid alpha=1.5,2 --repeats 1",
}


@pytest.mark.slow
@pytest.mark.no_cover
def test_docs_show_what_the_commands_print() -> None:
    lines: list[tuple[str, list[str]]] = []  # commands, and the output shown below each
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith("$ "):
                lines.append((line.removeprefix("$ "), []))
            else:
                lines[-1][1].append(line)
    assert {shlex.split(line)[1] for line, _ in lines} == set(COMMANDS)
    write_simulation(Path("few"), 20)
    write_simulation(Path("many"), 60, labels_per_item=16)
    Path("many/annotations.csv").rename("many.csv")
    write_votes(Path("monday.csv"), "comment401,reader01,fine\ncomment401,reader41,rude\n")
    for line, shown in lines:
        if shlex.split(line)[1] == usually("demo", verify=""):  # run by test_readme
            Path("demo-output/crowd").mkdir(parents=True)
            labels, population, _ = draw_crowd(seed=0)
            write_crowd(Path("demo-output/crowd"), labels, population, {}, annotators={})
            continue
        if shlex.split(line)[1] == "open":  # a page, which runs until Ctrl-C: tests/decide
            continue
        chooses = " fit " in line and "--model" not in line
        for words, fewer in usually(SMALLER, verify={}).items():
            line = line.replace(words, fewer)
        words = [*shlex.split(line)[1:], *(usually(SHORT, verify=[]) if chooses else [])]
        assert set(shown) <= set(run(*words).stdout.splitlines()), line


def test_output_without_a_command() -> None:
    assert run().stdout == run("--help").stdout
    assert run("--version").stdout == f"dissensus {__version__}\n"


# ---- messages -----------------------------------------------------------------------------------------


def test_settings_are_spelled_as_options() -> None:
    write_votes(Path("votes.csv"), "i,a,x\n")
    spelling = shell_spelling(COMMANDS["fit"], ["fit", "votes.csv"])
    for name, value, expected in (
        ("minutes", 2, "--minutes 2"),
        ("memory", None, "--memory"),
        ("item", "my id", "--item-column 'my id'"),
        ("force", True, "--force"),
        ("classes", ["a", "b"], "--classes a,b"),
        ("separator", ";", "dissensus import votes.csv --separator ';' -o labels.csv"),
        ("alpha", 2, "alpha=2"),
    ):
        assert spelling(name, value) == expected


def test_library_messages_name_no_options() -> None:
    source = Path(dissensus.__file__).parent
    lines = {
        f"{file.relative_to(source)}: {line.strip()}"
        for file in source.rglob("*.py")
        if "cli" not in file.parts and file.name != "label_studio.py"  # a program of its own
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.search(r"""["'( ]--[a-z{]""", line) and not line.lstrip().startswith("#")
    }
    assert lines == set()


def test_notes_and_control_characters() -> None:
    votes = write_votes(Path("votes.csv"), "i,a,yes\ni,b,Yes\n")
    result = run("fit", votes, "-m", "majority", "--json")
    assert "note: " in result.stderr
    json.loads(result.stdout)
    votes = write_votes(Path("votes.csv"), "i,a,\x1b[31mred\nj,a,x\n")
    assert "\x1b" not in run("describe", votes).stdout
    assert "\x1b" not in failure("fit", votes, "--classes", "x,y")


# ---- errors -------------------------------------------------------------------------------------------


def test_internal_error_names_the_debug_command(monkeypatch: pytest.MonkeyPatch) -> None:
    importlib.import_module("dissensus.report.page")  # else it would keep the broken function
    importlib.import_module("dissensus.workflow.runs")
    monkeypatch.setattr("dissensus.labels.description.describe", lambda _: 1 / 0)
    votes = write_votes(Path("votes.csv"), "i,a,x\n")
    line = failure("describe", votes, code=1)
    assert line.startswith("internal error (ZeroDivisionError")
    assert line.endswith("dissensus --debug describe votes.csv")
    assert "Traceback (most recent call last)" in run("describe", votes, "--debug", code=1).stderr


BAD: dict[str, tuple[str, str]] = {
    "mistyped command": ("fitt votes.csv", "'fit'"),
    "mistyped option": ("fit votes.csv --modle pgm", "no such option: --modle. Did you mean --model?"),
    "missing argument": ("fit", "see: dissensus fit --help"),
    "missing file": ("fit vote.csv", "did you mean 'votes.csv'?"),
    "directory": ("fit .", "directory"),
    "mistyped column": ("fit votes.csv --item-column itm", "did you mean 'item'?"),
    "mistyped model": ("fit votes.csv --model fm", "did you mean 'fmm'?"),
    "mistyped setting": ("fit votes.csv -m fmm --set alfa=2", "did you mean 'alpha'?"),
    "setting of another model": ("fit votes.csv -m majority -k 3", "has no setting"),
    "no time": ("fit votes.csv --minutes 0", "--minutes must be a float > 0"),
    "setting without a value": ("fit votes.csv -m fmm --set alpha", "name=value"),
    "not a number": ("fit votes.csv -k three", "'--item-clusters' / '-k' must be a valid integer"),
    "bad budget": ("plan votes.csv --budget 0", "--budget must be"),
    "option of import": ("fit votes.csv --separator ;", "an option of dissensus import"),
    "repeated option": ("fit votes.csv --seed 1 --seed=2", "--seed is given 2 times"),
    "unknown class": ("fit votes.csv --classes x,z", "'y' is not in the label set"),
    "foreign directory": ("fit votes.csv -o thesis", "not written by dissensus"),
    "output is a file": ("fit votes.csv -o votes.csv", "is a file"),
    "wrong features": ("fit votes.csv --features f.npy", "f.npy"),
    "missing text column": ("fit votes.csv --text-column txt", "there is no column 'txt'"),
    "no values": ("select votes.csv -k ,", "3:20"),
    "bad number of labels": ("recover votes.csv -r x", "whole numbers"),
    "report without a run": ("report thesis votes.csv", "not a run or a saved model"),
    "export of labels": ("export votes.csv -o l.csv", "fit the labels first: dissensus fit votes.csv"),
    "several files for a table": ("import votes.csv votes.csv -o l.csv", "-o l.store"),
    "broken model": ("score bad.safetensors votes.csv", "bad.safetensors"),
    "bad Dirichlet": ("fit votes.csv -m fmm --set alpha=1,x", "alpha= must be"),
    "unknown model": ("info dawid", "did you mean 'dawid-skene'?"),
    "no item columns": ("import votes.csv -o l.csv --items-to i.csv", "--items-to"),
    "unknown suffix": ("import votes.csv -o labels.xyz", "labels.xyz"),
    "output is the input": ("import votes.csv -o votes.csv", "this is the input file"),
    "unreachable cluster": ("fit votes.csv --cluster nonsense", "nonsense: no scheduler answers"),
    "bad memory limit": ("fit votes.csv --memory lots", "--memory must be a size such as '2GB'"),
    "no jobs": ("annotators votes.csv -j 0", "--jobs must be an int >= 1, or -1 for"),
}


@pytest.mark.parametrize("case", BAD)
def test_invalid_input_is_one_line_and_writes_nothing(case: str) -> None:
    line, expected = BAD[case]
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,y\nj,b,x\n")
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("years of work")
    Path("bad.safetensors").write_bytes(b"not a model")
    np.save("f.npy", np.zeros((5, 2)))
    before = tree(Path())
    assert expected in failure(*line.split())
    assert tree(Path()) == before

"""Values of options, and the lines that describe labels."""

from pathlib import Path

import dissensus
from dissensus.cli.options import parse_value, parse_values
from dissensus.cli.terminal import amounts
from tests.helpers.cli import COMMANDS, read_csv, run, write_votes


def test_values_of_options() -> None:
    lists = {"3:6": [3, 4, 5, 6], "1, 8:9": [1, 8, 9], "bp,vb": ["bp", "vb"], "none,0.5": [None, 0.5]}
    assert {text: parse_values(text) for text in lists} == lists
    values = {".3": 0.3, "2,2,1.5": [2.0, 2.0, 1.5], "[2, 1]": [2, 1], "vb": "vb", "none": None}
    assert {text: parse_value(text) for text in values} == values


def test_classes_are_separated_by_commas_or_repeated() -> None:
    write_votes(Path("votes.csv"), "i,a,low\nj,a,high\n")
    columns = []
    for words in (["--classes", "high,mid,low"], ["--classes", "high", "--classes", "low"]):
        run("fit", "votes.csv", "-o", "out", "-m", "majority", "--no-report", *words)
        columns.append([name for name in read_csv(Path("out/labels.csv"))[0] if name[:2] == "p_"])
    assert columns == [["p_high", "p_mid", "p_low"], ["p_high", "p_low"]]


def test_all_cores_are_the_default() -> None:
    for name, command in COMMANDS.items():
        jobs = next((parameter for parameter in command.params if parameter.name == "jobs"), None)
        assert jobs is None or jobs.default == -1, name


def test_amounts_name_what_was_labelled() -> None:
    sets = dissensus.Annotations.from_arrays(
        ["i", "i", "j"], ["a", "b", "a"], ['["x","y"]', '["x"]', '["z","y"]'], label_type="multi"
    )
    assert amounts(sets) == "3 labels by 2 annotators on 2 items, 3 classes in 3 different sets"
    write_votes(Path("votes.csv"), "i,a,x\ni,b,y\n")
    assert amounts(dissensus.read_annotations("votes.csv")) == "2 labels by 2 annotators on 1 item, 2 classes"
    Path("battles.csv").write_text("model_a,model_b,judge,winner\nm,n,a,model_a\nm,n,b,tie\n")
    line = amounts(dissensus.read_annotations("battles.csv"))
    assert line.startswith("2 labels by 2 annotators on 1 pair compared, ")

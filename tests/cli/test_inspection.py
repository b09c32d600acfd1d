"""``dissensus describe``, ``annotators``, ``plan`` and ``report``."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from tests.helpers.cli import failure, random_votes, read_csv, run, write_votes

pytestmark = pytest.mark.usefixtures("without_pandas")

SHORT = ["--model", "hpgm", "-s", "n_chains=2", "-s", "n_sweeps=20"]


def describe(*words: Any) -> Any:
    """Return the description that the command prints as JSON."""
    return json.loads(run("describe", *words, "--json").stdout)


def test_describe_counts_by_hand() -> None:
    write_votes(Path("votes.csv"), "i,a,x\ni,b,y\ni,b,y\nj,a,x\n")
    summary = describe("votes.csv")
    names = ("n_items", "n_annotators", "n_labels", "n_classes", "n_repeated_pairs")
    assert [summary[name] for name in names] == [2, 2, 4, 2, 1]
    # i has counts (1, 2), j has (1, 0)
    expected = -(math.log(1 / 3) / 3 + 2 * math.log(2 / 3) / 3) / 2
    assert summary["mean_entropy"] == pytest.approx(expected, rel=1e-9)


def test_describe_prints_coefficients_of_agreement() -> None:
    # agreement on 2 of 3 items; shares (2/3, 1/3) and (1/3, 2/3)
    write_votes(Path("votes.csv"), "i,a,x\ni,b,x\nj,a,x\nj,b,y\nk,a,y\nk,b,y\n")
    rows = describe("votes.csv", "--agreement", "cohen, percent")["coefficients"]
    assert [row["coefficient"] for row in rows] == ["cohen", "percent"]
    assert [row["value"] for row in rows] == pytest.approx([(2 / 3 - 4 / 9) / (5 / 9), 2 / 3])
    assert "coefficients" not in describe("votes.csv")
    plain, printed = (run("describe", "votes.csv", *words).stdout for words in ((), ("--agreement", "all")))
    assert printed.startswith(plain.rstrip("\n"))
    for name in ("Agreement, with 95 % intervals", "brennan_prediger", "cohen", "scott", "ac1", "alpha"):
        assert name in printed[len(plain) :]
    line = failure("describe", "votes.csv", "--agreement", "ac1,alhpa")
    assert "--agreement must be one of all, percent" in line
    assert "did you mean 'alpha'" in line
    assert "icc1 is of numbers; read the labels with --label-type numeric" in failure(
        "describe", "votes.csv", "--agreement", "icc1"
    )


def test_other_columns_of_counts_are_not_classes() -> None:
    rows = "".join(f"i{m},a{n},{'xy'[m % 2]},{m},{n}\n" for m in range(6) for n in range(3))
    Path("votes.csv").write_text("item,annotator,label,count_likes,count_shares\n" + rows)
    assert describe("votes.csv")["class_counts"] == {"x": 9, "y": 9}


@pytest.mark.parametrize(("column", "noted"), [("task", False), ("tweet_id", True)])
def test_only_unusual_column_names_are_noted(column: str, noted: bool) -> None:
    Path("votes.csv").write_text(f"{column},worker,label\n1,a,x\n1,b,y\n2,a,x\n2,b,x\n")
    assert (f"read item from '{column}'" in run("describe", "votes.csv").stderr) == noted


def test_reading_options_are_refused_for_a_run() -> None:
    random_votes()
    run("fit", "votes.csv", "--model", "majority", "--no-report", "-o", "refined")
    assert "is a store or a run" in failure("describe", "refined", "--classes", "x,y,z")
    assert ds.fit("refined", "majority").annotations.n_labels == 120


@pytest.mark.slow
def test_annotators_who_answer_at_random_are_spam() -> None:
    # twelve annotators who err on every tenth item, one who answers by coin, and a harsh one
    rng = np.random.default_rng(0)
    rows = [f"{m},a{n:02d},{'xy'[(m + (rng.random() < 0.1)) % 2]}" for m in range(120) for n in range(12)]
    rows += [f"{m},coin,{'xy'[rng.integers(2)]}" for m in range(120)]
    rows += [f"{m},harsh,{'xy'[m % 2] if m % 8 else 'y'}" for m in range(120)]  # y for every fourth x
    write_votes(Path("votes.csv"), "\n".join(rows) + "\n")
    short = ["--set", "n_chains=2", "--set", "n_sweeps=100", "--no-report"]
    run("fit", "votes.csv", "-o", "judged", "--model", "hpgm", *short)
    text = run("annotators", "judged", "-o", "who.csv").stdout
    verdicts = {row["annotator"]: row["verdict"] for row in read_csv(Path("who.csv"))}
    assert verdicts["coin"] == "spam"
    assert {verdict for name, verdict in verdicts.items() if name != "coin"} == {"typical"}
    assert "13 typical" in text
    assert text.splitlines()[0].startswith("Talk to 1 annotator first")
    assert "coin (spam" in " ".join(text.split())
    assert "The labels show no groups" in " ".join(text.split())
    harsh = next(line for line in text.splitlines() if line.strip().startswith("harsh"))
    assert "y +1" in harsh  # on 15 of 120 items, give or take the errors of the others
    table = json.loads(run("annotators", "judged", "--json").stdout)
    assert dict(zip(table["annotator"], table["verdict"], strict=True)) == verdicts


@pytest.mark.slow
def test_report_reproduces_the_report_of_a_run(crowd: Path) -> None:
    labels = crowd / "annotations.csv"
    run("fit", labels, "-m", "pgm", "-k", 3, "-l", 2, "-o", "refined")
    first = Path("refined/report.html").read_text(encoding="utf-8")
    run("report", "refined", labels, "-o", "again.html")
    assert Path("again.html").read_text(encoding="utf-8") == first
    run("report", "refined", labels, "--anonymise")
    assert '"a01"' in first
    assert '"a01"' not in Path("refined/report.html").read_text(encoding="utf-8")
    run("report", "refined/model.safetensors", labels)
    assert Path("report.html").is_file()


BATTLES = "".join(
    f"{'mnop'[k % 4]},{'mnop'[(k + 1) % 4]},j{k % 3},{'left' if k % 5 else 'right'}\n" for k in range(60)
)
NUMBERS = "".join(f"i{m},a{n},{m + n / 7:.2f}\n" for m in range(20) for n in range(4))
PGM = ["--model", "pgm", "-k", 2, "-l", 2]
RATINGS = ["--model", "ratings"]
PAIRWISE = ["--model", "bradley-terry"]
DEFAULT = ["-s", "n_chains=2", "-s", "n_sweeps=20"]
NEW = "i1,new,x\ni2,new,y\n"
GRADES = "item,annotator,label\n" + "".join(
    f"i{m},a{n},{1 + (m + n * m % 3) % 4}\n" for m in range(24) for n in range(5)
)
# text of the labels (random if empty), words of ``fit``, new labels
RUNS: dict[str, tuple[str, list[Any], str]] = {
    "default": ("", DEFAULT, NEW),
    "features": ("", [*DEFAULT, "--features", "features.npy"], NEW),
    "more labels than are sampled": ("", [*DEFAULT, "-s", "max_sampled=60"], NEW),
    "ordered": (GRADES, [*DEFAULT, "--label-type", "ordinal"], "i1,new,1\ni2,new,3\n"),
    "hpgm": ("", SHORT, NEW),
    "pgm": ("", PGM, NEW),
    "numeric": ("item,annotator,label\n" + NUMBERS, RATINGS, "i1,b,3\ni2,b,1\n"),
    "pairwise": ("model_a,model_b,judge,winner\n" + BATTLES, PAIRWISE, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_every_command_works_on_every_run(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fit = ds.HPGM.fit

    def short_fit(model: Any, *labels: Any, **more: Any) -> Any:
        return fit(model.set_params(n_chains=2, n_sweeps=20), *labels, **more)

    monkeypatch.setattr("dissensus.models.hpgm.model.HPGM.fit", short_fit)
    text, words, new = RUNS[kind]
    random_votes()
    np.save("features.npy", np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32))
    if text:
        Path("votes.csv").write_text(text)
    run("fit", "votes.csv", *words, "-o", "refined")
    model = ds.load("refined/model.safetensors")
    if words[: len(DEFAULT)] == DEFAULT:
        assert type(model) is ds.Pool
        assert (model.use_features, len(model.members_)) == (kind == "features", 1 + (kind == "ordered"))
        assert model.can_continue == (kind in ("default", "ordered"))
    for command in ("describe", "annotators", "plan", "report"):
        assert run(command, "refined").stdout
    if kind not in ("numeric", "pairwise"):
        assert run("judges", "refined", "--judges", "a4").stdout
        assert run("score", "refined", "votes.csv").stdout
        run("export", "refined", "-o", "exported.csv")
        assert len(read_csv(Path("exported.csv"))) >= 24
    if new:
        write_votes(Path("new.csv"), new)
        assert "2 labels added" in run("update", "refined", "new.csv", "-o", "later").stdout
        assert type(ds.load("later/model.safetensors")) is type(model)

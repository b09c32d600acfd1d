"""Plans: gains against enumeration and the Dirichlet's closed form, giving out against plain greed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import digamma

import dissensus as ds
from cli_help import run
from dissensus.annotators.plan import _whom, allocated, losses, may_be_asked, people_left, worth_of_losses
from dissensus.errors import DataError, ParameterError
from docs_help import DOCS, run_page
from experiments.planted_crowds import SPAM, planted


def entropy(p):
    return -sum(x * np.log(x) for x in p if x > 0)


def loss_of(draws, weight):
    """E KL(Y ‖ Ȳ), draw by draw."""
    mean = sum(w * y for w, y in zip(weight, draws, strict=True))
    return sum(w * (y * np.log(y / mean)).sum() for w, y in zip(weight, draws, strict=True))


def test_the_gain_of_a_label_by_enumeration():
    rng = np.random.default_rng(0)
    draws = rng.dirichlet([1, 2, 0.5], size=(7, 4))
    now, after = losses(draws.astype(np.float32))
    for m in range(4):
        mine, even = draws[:, m], np.full(7, 1 / 7)
        expected = 0.0
        for p in range(3):
            weight = mine[:, p] / mine[:, p].sum()
            expected += mine[:, p].mean() * loss_of(mine, weight)
        assert now[m] == pytest.approx(loss_of(mine, even), rel=1e-4)
        assert after[m] == pytest.approx(expected, rel=1e-4)


def dirichlet_loss(alpha):
    """H(mean) − E H(Y), E H = ψ(A + 1) − Σ α/A ψ(α + 1)."""
    alpha = np.asarray(alpha, dtype=float)
    total = alpha.sum()
    return entropy(alpha / total) - (digamma(total + 1) - (alpha / total * digamma(alpha + 1)).sum())


def test_the_gain_of_a_label_of_a_dirichlet():
    alpha = np.array([4.0, 2.0, 2.0])
    draws = np.random.default_rng(1).dirichlet(alpha, size=(60_000, 1))
    now, after = losses(draws)
    expected = sum(a / alpha.sum() * dirichlet_loss(alpha + np.eye(3)[p]) for p, a in enumerate(alpha))
    assert now[0] == pytest.approx(dirichlet_loss(alpha), rel=0.02)
    assert after[0] == pytest.approx(expected, rel=0.02)
    # a Dirichlet's loss falls about as 1 / (labels it is worth)
    assert worth_of_losses(now, after)[0] == pytest.approx(alpha.sum(), rel=0.15)


@pytest.mark.parametrize("budget", [1, 7, 40, 500])
def test_labels_go_where_the_next_one_gains_most(budget):
    rng = np.random.default_rng(budget)
    now, worth = rng.random(9), 10 * rng.random(9) + 0.1
    given = np.zeros(9, int)
    for _ in range(budget):
        given[np.argmax(now * worth / ((worth + given) * (worth + given + 1)))] += 1
    found = allocated(now, worth, budget)
    assert found.sum() == budget
    after = [(now * worth / (worth + some)).sum() for some in (given, found)]
    assert after[1] == pytest.approx(after[0], rel=1e-12)


def test_no_item_gets_more_labels_than_there_are_people_left():
    now, worth = np.array([0.5, 0.2, 0.1]), np.array([2.0, 2.0, 2.0])
    assert allocated(now, worth, 6, np.array([2, 1, 9])).tolist() == [2, 1, 3]
    assert allocated(now, worth, 60, np.array([2, 1, 0])).tolist() == [2, 1, 0]
    # a and b have labelled i1, a and gpt-4 have labelled i2, of the people a, b, c
    rows = [("i1", "a"), ("i1", "b"), ("i1", "b"), ("i2", "a"), ("i2", "gpt-4"), ("i3", "c")]
    item, who = zip(*rows, strict=True)
    labels = ds.Annotations.from_arrays(item, who, ["x"] * 6)
    assert left(labels).tolist() == [1, 2, 2]
    kinds = {"annotator": ["a", "b", "c", "gpt-4"], "kind": ["llm", "human", "human", "human"]}
    assert left(labels.with_tables(annotators=kinds)).tolist() == [2, 2, 2]
    counts = ds.Annotations.from_counts([[1, 1]])
    assert left(counts)[0] > 1e6
    # c spams, or errs systematically: whoever is not asked is nobody who is left
    for verdict in ("spam", "systematic error"):
        found = SimpleNamespace(verdict=np.array(["typical", "minority view", verdict, "typical"]))
        assert left(labels, found).tolist() == [0, 1, 2]


def left(labels, found=None):
    return people_left(labels, may_be_asked(labels, found))


def test_models_are_not_asked_and_everybody_once():
    rng = np.random.default_rng(0)
    names = ["ann", "bob", "cleo", "gpt-4"]
    rows = [
        (m, who, "xy"[(m + (rng.random() < 0.3)) % 2]) for m in range(30) for who in names if m or who > "b"
    ]
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True))
    model = ds.HPGM(n_chains=2, n_sweeps=40, n_jobs=1).fit(labels)
    plan = ds.plan_labels(model.training_labels(), model, budget=20)
    assert plan.n_more.tolist() == [1] + 29 * [0]  # ann has not labelled the first item
    assert plan.n_by_all == 29
    assert "gpt-4" not in plan.ask
    found = ds.label_queue(labels, model, each=5)
    assert found.n_more[found.action == "label"].sum() <= 1


def test_items_of_which_all_is_known_get_nothing():
    assert allocated(np.array([0.0, 0.1, 0.0]), np.array([3.0, 3.0, 3.0]), 5).tolist() == [0, 5, 0]


# ---- plans of a fitted model --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    return planted(3, n_annotators=30, labels_each=40, spammers=0.1, accuracy=0.9)


@pytest.fixture(scope="module")
def model(crowd):
    return ds.HPGM(n_chains=2, n_sweeps=60, n_jobs=1).fit(crowd.annotations)


@pytest.mark.slow
def test_a_budget_is_spent_and_lowers_the_loss(crowd, model):
    plan = ds.plan_labels(model.training_labels(), model, budget=100)
    assert plan.n_more.sum() == 100 == plan.budget
    assert (plan.loss_after[plan.n_more > 0] < plan.loss[plan.n_more > 0]).all()
    assert plan.loss_after.mean() < plan.uniform_loss < plan.loss.mean()
    # whoever is asked for a label is asked about an item that gains at least as much as those left out
    assert plan.gain[plan.n_more > 0].min() >= plan.gain[plan.n_more == 0].max() - 1e-9
    called = ds.annotator_verdicts(model.training_labels(), model).verdict == "spam"
    assert not set(plan.ask) & set(crowd.annotations.annotators[called])
    frame = plan.to_frame()
    assert frame["n_more"].is_monotonic_decreasing
    assert list(frame.columns)[:3] == ["item", "n_labels", "n_more"]


def test_a_width_that_is_reached_needs_nothing(model):
    plan = ds.plan_labels(model.training_labels(), model, target_interval=1.0)
    assert plan.stop
    assert plan.budget == 0
    narrow = ds.plan_labels(model.training_labels(), model, target_interval=0.1)
    assert not narrow.stop
    everybody = narrow.n_more == left(
        model.training_labels(), ds.annotator_verdicts(model.training_labels(), model)
    )
    assert (everybody | (narrow.width_after <= 0.1 + 1e-9)).all()
    # with both, nothing goes to items that are sure enough
    both = ds.plan_labels(model.training_labels(), model, target_interval=0.1, budget=50)
    assert both.budget == 50
    assert (both.n_more[both.width <= 0.1] == 0).all()


def test_items_for_a_narrow_alpha_grow_with_the_square(model):
    plan = ds.plan_labels(model.training_labels(), model, target_alpha_width=0.01)
    width = plan.alpha[2] - plan.alpha[1]
    assert plan.items_for_alpha == int(np.ceil(len(plan.item) * (width / 0.01) ** 2))
    assert plan.alpha[1] < plan.alpha[0] < plan.alpha[2]


def test_what_cannot_be_planned(crowd, model):
    with pytest.raises(DataError, match="plans come from the draws of HPGM"):
        ds.plan_labels(crowd.annotations, ds.MajorityVote().fit(crowd.annotations), budget=5)
    with pytest.raises(ParameterError, match="'budget' parameter of plan_labels must be given"):
        ds.plan_labels(model.training_labels(), model)
    with pytest.raises(ParameterError, match="'budget' parameter"):
        ds.plan_labels(model.training_labels(), model, budget=0)
    with pytest.raises(ParameterError, match="'target_interval' parameter"):
        ds.plan_labels(model.training_labels(), model, target_interval=0.0)


@pytest.mark.slow
def test_more_labels_make_narrower_intervals_about_as_foreseen():
    # labels that the plan asks for come in; the loss then stated is about the one that was promised
    whole = planted(5, n_annotators=30, labels_each=80, labels_per_item=12, spammers=0.0).annotations
    place = np.arange(whole.n_labels) - whole.item_pointers[whole.item]
    first = whole.take_rows(place < 4)
    fitted = ds.HPGM(n_chains=2, n_sweeps=80, n_jobs=1).fit(first)
    plan = ds.plan_labels(fitted.training_labels(), fitted, budget=2 * whole.n_items)
    taken = np.minimum(4 + plan.n_more, 12)
    later = ds.HPGM(n_chains=2, n_sweeps=80, n_jobs=1).fit(whole.take_rows(place < taken[whole.item]))
    now = losses(later.share_draws_)[0].mean()
    assert now < plan.loss.mean()
    assert 0.4 < now / plan.loss_after.mean() < 2.5


@pytest.mark.slow
@pytest.mark.parametrize("page", ["annotators", "plan"])
def test_the_pages_print_what_they_say(page):
    assert run_page(DOCS / f"{page}.md", console=False) == 1


# ---- the commands -------------------------------------------------------------------------------------


@pytest.fixture
def place(crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    known = crowd.annotations
    names = np.array(["a", "b", "c", "d"])[known.label]
    lines = [f"i{m},w{n},{p}" for m, n, p in zip(known.item, known.annotator, names, strict=True)]
    head = "item,annotator,label\n"
    Path("old.csv").write_text(head + "\n".join(lines[:-60]) + "\n")
    Path("new.csv").write_text(head + "\n".join(lines[-60:]) + "\n")
    settings = ["--set", "n_sweeps=40", "--set", "n_chains=2"]
    run("fit", "old.csv", "-m", "hpgm", *settings, "--test-size", 0, "--no-report", "-o", "run")
    return tmp_path


@pytest.mark.slow
def test_a_run_is_judged_planned_shown_and_updated(place):
    text = run("annotators", "run", "-o", "who.csv").stdout
    assert "typical" in text
    kept = json.loads(run("annotators", "run", "--json").stdout)
    again = json.loads(run("annotators", "run/model.safetensors", "--json").stdout)
    assert kept["verdict"] == again["verdict"]
    assert list(kept) == list(again)
    np.testing.assert_allclose(kept["model_agreement"], again["model_agreement"], atol=1e-5)
    assert Path("who.csv").read_text().startswith('"annotator"')
    plan = json.loads(run("plan", "run", "--budget", 30, "--json").stdout)
    assert plan["plan"]["budget"] == 30
    assert "30 labels for" in run("plan", "run", "--budget", 30, "-o", "plan.csv").stdout
    run("report", "run", "-o", "page.html")
    before = Path("run/labels.csv").read_bytes()
    said = run("update", "run", "new.csv", "-o", "later", "--no-report").stdout
    assert "60 labels added" in said
    assert Path("run/labels.csv").read_bytes() == before
    summary = json.loads(Path("later/summary.json").read_text())
    assert summary["updated"]["n_labels"] == 1140
    run("update", "run", "new.csv", "--no-report")
    assert Path("run/labels.csv").read_bytes() == Path("later/labels.csv").read_bytes()
    model = ds.load("run/model.safetensors")
    assert model.training_labels().n_labels == 1200
    assert "has all 60 labels already" in run("update", "run", "new.csv", code=2).stderr


@pytest.mark.slow
def test_a_run_remembers_how_its_labels_were_read(place):
    for name in ("old", "new"):
        header, *rows = Path(f"{name}.csv").read_text().splitlines()
        assert header == "item,annotator,label"
        asked = [f"{row},{row.split(',')[0]}" for row in rows]
        Path(f"{name}-asked.csv").write_text("\n".join(["item,annotator,q1,q2", *asked]) + "\n")
    settings = ["--set", "n_sweeps=20", "--set", "n_chains=1", "--test-size", 0, "--no-report"]
    run("fit", "old-asked.csv", "-m", "hpgm", *settings, "--label-column", "q1", "-o", "asked")
    assert json.loads(Path("asked/summary.json").read_text())["reading"] == {"label": "q1"}
    run("report", "asked", "old-asked.csv", "-o", "page.html")
    assert "60 labels added" in run("update", "asked", "new-asked.csv", "--no-report").stdout
    assert json.loads(Path("asked/summary.json").read_text())["reading"] == {"label": "q1"}
    assert ds.load("asked/model.safetensors").n_labels_.sum() == 1200


@pytest.mark.slow
def test_labels_of_named_people_are_not_added_to_a_run_that_knows_numbers(place):
    settings = ["--set", "n_sweeps=20", "--set", "n_chains=1", "--test-size", 0, "--no-report"]
    run("fit", "old.csv", "-m", "hpgm", *settings, "--anonymise", "-o", "hidden")
    assert "numbers for names" in run("update", "hidden", "new.csv", "-o", "later", code=2).stderr
    assert not Path("later").exists()


def test_equal_views_are_asked_in_turn():
    found = SimpleNamespace(
        annotator=np.array(list("abcdef")),
        information=np.array([0.9, 0.8, 0.7, 0.2, 0.1, 0.0]),
        view=np.array([0, 0, 0, 1, 1, -1]),
        n_equal=2,
    )
    people = np.array([True] * 5 + [False])
    assert "".join(_whom(found, people)) == "adbec"
    found.n_equal = 1
    assert "".join(_whom(found, people)) == "abcde"


@pytest.mark.slow
def test_what_cannot_be_updated_is_said_in_a_line(place):
    run("fit", "old.csv", "-m", "majority", "--test-size", 0, "--no-report", "-o", "votes")
    assert "60 labels added" in run("update", "votes", "new.csv", "--no-report", "-o", "more").stdout
    Path("odd.csv").write_text("item,annotator,label\ni1,w1,zebra\n")
    before = Path("run/summary.json").read_bytes()
    told = run("update", "run", "odd.csv", code=2).stderr
    assert "item 'i1' by annotator 'w1': class 'zebra'" in told
    assert "--classes" in told
    assert Path("run/summary.json").read_bytes() == before
    assert "to adjudicate" in run("plan", "run").stdout


def test_spammers_are_not_asked(crowd, model):
    labels = crowd.annotations
    verdict = ds.annotator_verdicts(labels, model).verdict
    asked = set(ds.plan_labels(model.training_labels(), model, budget=3).ask)
    assert (verdict[crowd.kind == SPAM] == "spam").any()
    assert asked.isdisjoint(set(labels.annotators[verdict == "spam"]))

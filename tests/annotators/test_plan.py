"""Plans and queues: gains by enumeration and closed form, greedy allocation, and the commands."""

import csv
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import digamma

import dissensus as ds
from dissensus.annotators.plan import (
    allocate,
    annotators_to_ask,
    collect_findings,
    equivalent_labels,
    losses,
    may_be_asked,
    people_left,
)
from dissensus.errors import DataError, DissensusError, ParameterError
from dissensus.report.summary_cards import changes
from dissensus.workflow.refine import Refinement
from dissensus.workflow.runs import write_run
from experiments.verdicts import SPAM, planted_crowd
from tests.helpers.cli import run
from tests.helpers.export_samples import choice

QUICK = {"n_chains": 2, "n_jobs": 1}


# ---- gain of a label ----------------------------------------------------------------------------------


def expected_kl(draws, weight):
    """E KL(Y ‖ Ȳ), draw by draw."""
    mean = sum(w * y for w, y in zip(weight, draws, strict=True))
    return sum(w * (y * np.log(y / mean)).sum() for w, y in zip(weight, draws, strict=True))


def test_gain_by_enumeration():
    draws = np.random.default_rng(0).dirichlet([1, 2, 0.5], size=(7, 4))
    now, after = losses(draws.astype(np.float32))
    for m in range(4):
        item = draws[:, m]
        expected = sum(item[:, p].mean() * expected_kl(item, item[:, p] / item[:, p].sum()) for p in range(3))
        assert now[m] == pytest.approx(expected_kl(item, np.full(7, 1 / 7)), rel=1e-4)
        assert after[m] == pytest.approx(expected, rel=1e-4)


def dirichlet_loss(alpha):
    """H(mean) − E H(Y), with E H = ψ(A + 1) − Σ α/A ψ(α + 1)."""
    total = alpha.sum()
    entropy = -(alpha / total * np.log(alpha / total)).sum()
    return entropy - (digamma(total + 1) - (alpha / total * digamma(alpha + 1)).sum())


def test_gain_of_a_dirichlet():
    alpha = np.array([4.0, 2.0, 2.0])
    now, after = losses(np.random.default_rng(1).dirichlet(alpha, size=(60_000, 1)))
    expected = sum(a / alpha.sum() * dirichlet_loss(alpha + np.eye(3)[p]) for p, a in enumerate(alpha))
    assert now[0] == pytest.approx(dirichlet_loss(alpha), rel=0.02)
    assert after[0] == pytest.approx(expected, rel=0.02)
    # the loss falls about as 1 / (equivalent labels)
    assert equivalent_labels(now, after)[0] == pytest.approx(alpha.sum(), rel=0.15)


@pytest.mark.parametrize("budget", [1, 7, 40, 500])
def test_allocation_is_greedy(budget):
    rng = np.random.default_rng(budget)
    now, n = rng.random(9), 10 * rng.random(9) + 0.1
    greedy = np.zeros(9, int)
    for _ in range(budget):
        greedy[np.argmax(now * n / ((n + greedy) * (n + greedy + 1)))] += 1
    allocation = allocate(now, n, budget, np.full(9, budget))
    assert allocation.sum() == budget
    after = [(now * n / (n + labels)).sum() for labels in (greedy, allocation)]
    assert after[1] == pytest.approx(after[0], rel=1e-12)


def left(labels, verdicts=None):
    return people_left(labels, may_be_asked(labels, verdicts))


def test_items_get_at_most_one_label_per_eligible_person():
    now, n = np.array([0.5, 0.2, 0.1]), np.array([2.0, 2.0, 2.0])
    for budget, limit, expected in ((6, [2, 1, 9], [2, 1, 3]), (60, [2, 1, 0], [2, 1, 0])):
        assert allocate(now, n, budget, np.array(limit)).tolist() == expected
    assert allocate(np.array([0.0, 0.1, 0.0]), n, 5, np.full(3, 5)).tolist() == [0, 5, 0]
    # a and b have labelled i1, a and gpt-4 have labelled i2, of the people a, b, c
    rows = [("i1", "a"), ("i1", "b"), ("i1", "b"), ("i2", "a"), ("i2", "gpt-4"), ("i3", "c")]
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), ["x"] * 6)
    assert left(labels).tolist() == [1, 2, 2]
    kinds = {"annotator": ["a", "b", "c", "gpt-4"], "kind": ["llm", "human", "human", "human"]}
    assert left(labels.with_tables(annotators=kinds)).tolist() == [2, 2, 2]
    assert left(ds.Annotations.from_counts([[1, 1]]))[0] > 1e6
    for verdict in ("spam", "systematic error"):  # of c, who is then not asked
        verdicts = SimpleNamespace(verdict=np.array(["typical", "minority view", verdict, "typical"]))
        assert left(labels, verdicts).tolist() == [0, 1, 2]


def test_groups_take_turns():
    verdicts = SimpleNamespace(
        annotator=np.array(list("abcdef")), group=np.array([0, 0, 0, 1, 1, -1]),
        information=np.array([0.9, 0.8, 0.7, 0.2, 0.1, 0.0]),
    )  # fmt: skip
    for verdicts.groups, order in ((object(), "adbec"), (None, "abcde")):
        assert "".join(annotators_to_ask(verdicts, np.arange(6) < 5)) == order


# ---- plans of a fitted model --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    return planted_crowd(3, n_annotators=30, labels_each=40, spammers=0.1, accuracy=0.9)


@pytest.fixture(scope="module")
def model(crowd):
    return ds.HPGM(**QUICK, n_sweeps=60).fit(crowd.annotations)


@pytest.fixture(scope="module")
def labels(model):
    return model.training_labels()


def test_language_models_are_not_asked():
    rng = np.random.default_rng(0)
    pairs = [(m, name) for m in range(30) for name in ("ann", "bob", "cleo", "gpt-4") if m or name > "b"]
    rows = [(m, name, "xy"[(m + (rng.random() < 0.3)) % 2]) for m, name in pairs]
    model = ds.HPGM(**QUICK, n_sweeps=40).fit(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    plan = ds.plan_labels(model.training_labels(), model, budget=20)
    assert plan.n_more.tolist() == [1] + 29 * [0]  # ann has not labelled the first item
    assert plan.n_by_all == 29
    assert "gpt-4" not in plan.ask
    queue = ds.label_queue(model.training_labels(), model, each=5)
    assert queue.n_more[queue.action == "label"].sum() <= 1


@pytest.mark.slow
def test_a_budget_is_spent_and_lowers_the_loss(crowd, model, labels):
    plan = ds.plan_labels(labels, model, budget=100)
    assert plan.n_more.sum() == 100 == plan.budget
    assert (plan.loss_after[plan.n_more > 0] < plan.loss[plan.n_more > 0]).all()
    assert plan.loss_after.mean() < plan.uniform_loss < plan.loss.mean()
    assert plan.gain[plan.n_more > 0].min() >= plan.gain[plan.n_more == 0].max() - 1e-9
    spam = ds.annotator_verdicts(labels, model).verdict == "spam"
    assert spam[crowd.kind == SPAM].any()
    assert not set(plan.ask) & set(crowd.annotations.annotators[spam])
    frame = plan.to_frame()
    assert frame["n_more"].is_monotonic_decreasing
    assert list(frame.columns)[:3] == ["item", "n_labels", "n_more"]


def test_target_widths(model, labels):
    wide, narrow = (ds.plan_labels(labels, model, target_interval=width) for width in (1.0, 0.1))
    assert (wide.stop, wide.budget, narrow.stop) == (True, 0, False)
    by_all = narrow.n_more == left(labels, ds.annotator_verdicts(labels, model))
    assert (by_all | (narrow.width_after <= 0.1 + 1e-9)).all()
    both = ds.plan_labels(labels, model, target_interval=0.1, budget=50, target_alpha_width=0.01)
    assert both.budget == 50
    assert (both.n_more[both.width <= 0.1] == 0).all()
    width = both.alpha[2] - both.alpha[1]
    assert both.items_for_alpha == int(np.ceil(len(both.item) * (width / 0.01) ** 2))


def test_invalid_plans_are_refused(crowd, model, labels):
    with pytest.raises(DataError, match="plans need the posterior draws of HPGM"):
        ds.plan_labels(crowd.annotations, ds.MajorityVote().fit(crowd.annotations), budget=5)
    with pytest.raises(ParameterError, match="'budget' parameter of plan_labels must be given"):
        ds.plan_labels(labels, model)
    for settings in ({"budget": 0}, {"target_interval": 0.0}):
        with pytest.raises(ParameterError, match=f"'{next(iter(settings))}' parameter"):
            ds.plan_labels(labels, model, **settings)


@pytest.mark.slow
def test_new_labels_lower_the_loss_as_predicted():
    every = planted_crowd(5, n_annotators=30, labels_each=80, labels_per_item=12, spammers=0.0).annotations
    rank = np.arange(every.n_labels) - every.item_pointers[every.item]
    first = ds.HPGM(**QUICK, n_sweeps=80).fit(every.take_rows(rank < 4))
    plan = ds.plan_labels(first.training_labels(), first, budget=2 * every.n_items)
    taken = np.minimum(4 + plan.n_more, 12)
    later = ds.HPGM(**QUICK, n_sweeps=80).fit(every.take_rows(rank < taken[every.item]))
    now = losses(later.share_draws_)[0].mean()
    assert now < plan.loss.mean()
    assert 0.4 < now / plan.loss_after.mean() < 2.5


# ---- queues -------------------------------------------------------------------------------------------


def votes():
    """i1: unanimous, i2: 2–2, i3: one label, i4: 3–2."""
    answers = {"i1": "xxxxx", "i2": "xxyy", "i3": "y", "i4": "xxxyy"}
    rows = [(item, f"a{n}", label) for item, text in answers.items() for n, label in enumerate(text)]
    return ds.Annotations.from_arrays(*zip(*rows, strict=True))


def test_ties_are_adjudicated_and_missing_labels_queued():
    labels = votes().with_tables(items={"item": ["i1", "i2", "i3", "i4", "i5"]})
    queue = ds.label_queue(labels, ds.MajorityVote().fit(labels))
    columns = queue.action, queue.n_more, queue.reason, queue.labelled_by
    assert dict(zip(queue.item, zip(*columns, strict=True), strict=True)) == {
        "i2": ("adjudicate", 1, "4 labels, nearly tied: 2 ‘x’ and 2 ‘y’", "a0;a1;a2;a3"),
        "i4": ("adjudicate", 1, "5 labels, nearly tied: 3 ‘x’ and 2 ‘y’", "a0;a1;a2;a3;a4"),
        "i3": ("label", 1, "1 label: 1 ‘y’", "a0"),
        "i5": ("label", 1, "no label yet", ""),
    }


@pytest.mark.parametrize(("budget", "each"), [(1, None), (2, None), (3, 2), (9, 3)])
def test_a_queue_keeps_its_budget(budget, each):
    queue = ds.label_queue(votes(), ds.FMM(2).fit(votes()), budget=budget, each=each)
    assert queue.n_more.sum() <= budget
    assert (queue.n_more > 0).all()


@pytest.mark.slow
def test_a_sampled_model_spends_the_whole_budget():
    crowd = ds.simulate(60, 12, 3, labels_per_item=4, seed=2).annotations
    model = ds.HPGM(**QUICK, n_sweeps=40, seed=0).fit(crowd)
    every = ds.label_queue(crowd, model)
    n_ties = int((every.action == "adjudicate").sum())
    queue = ds.label_queue(crowd, model, budget=n_ties + 25)
    assert queue.n_more.sum() == n_ties + 25
    assert not set(queue.item[queue.action == "label"]) & set(every.item[every.action == "adjudicate"])


def test_ratings_have_a_queue_but_no_changes_since_a_run(tmp_path):
    rng = np.random.default_rng(0)
    item, annotator = np.repeat(np.arange(20), 4), np.tile(np.arange(4), 20)
    grades = (item % 5 + rng.normal(size=80)).round(2)
    ratings = ds.Annotations.from_arrays(item, annotator, grades, label_type="numeric")
    model = ds.NumericRatings().fit(ratings)
    queue = ds.label_queue(ratings, model, budget=5)
    assert len(queue) == 5
    assert "interval of the mean: width" in queue.reason[0]
    with pytest.raises(DissensusError, match="does not support since="):
        ds.write_report(ratings, model, tmp_path / "p.html", since=tmp_path)
    with pytest.raises(DissensusError, match="budget"):
        ds.label_queue(ratings, model, budget=0)


# ---- runs ---------------------------------------------------------------------------------------------


def write_csv(path, head, lines):
    path.write_text("\n".join([head, *(",".join(map(str, line)) for line in lines)]) + "\n")
    return path


def page_data(path):
    return json.loads(re.findall(r'id="data">(.*?)</script>', path.read_text(), re.DOTALL)[0])


@pytest.mark.slow
def test_queue_label_studio_update_and_changes(tmp_path):
    labels = ds.simulate(80, 15, 3, labels_per_item=4, seed=5).annotations
    ids = [f"t{m}" for m in range(80)]
    lines = [(ids[m], f"a{n}", f"c{p}") for m, n, p in zip(*labels.columns, strict=True)]
    file = write_csv(tmp_path / "votes.csv", "item,annotator,label", lines)
    texts = write_csv(tmp_path / "texts.csv", "item,text", [(name, f"Text {name}") for name in ids])
    first, later, tasks = tmp_path / "first", tmp_path / "later", tmp_path / "tasks.json"
    settings = ["-s", "n_chains=2", "-s", "n_sweeps=40"]
    run("fit", file, "--model", "hpgm", *settings, "-o", first, "--no-report")
    run("plan", first, "--items", texts, "--each", 2, "--budget", 40, "--for", "label-studio", "-o", tasks)
    queue = json.loads(tasks.read_text())
    assert queue
    assert all(task["data"]["text"] == f"Text {task['data']['item']}" for task in queue)
    rng, new = np.random.default_rng(0), []

    def answer(k):
        new.append(f"new{k}@example.org")
        result = [choice("label", f"c{rng.integers(3)}")]
        return {"id": k, "completed_by": {"email": new[-1]}, "result": result}

    # an export of Label Studio: it has its own ids, and ours in the data
    export = [
        {"id": 900 + t, "data": data, "annotations": [answer(k) for k in range(data["n_more"])]}
        for t, data in enumerate(task["data"] for task in queue)
    ]
    answers = tmp_path / "export.json"
    answers.write_text(json.dumps(export))
    run("update", first, answers, "--item-column", "item", "-o", later, "--no-report")
    run("report", later, "--items", texts, "--since", first, "-o", tmp_path / "page.html")
    described = json.loads(run("describe", later, "--json").stdout)
    assert described["n_labels"] == labels.n_labels + len(new)
    content = page_data(tmp_path / "page.html")
    since = content["since"]
    assert since["name"] == "first"
    # counted from the files of the two runs
    before, after = (
        {row["item"]: row for row in csv.DictReader((folder / "labels.csv").read_text().splitlines())}
        for folder in (first, later)
    )
    flipped = {item for item in before if before[item]["label"] != after[item]["label"]}
    assert {row[0] for row in since["flipped"]} == flipped
    alphas = [json.loads((folder / "summary.json").read_text())["data"]["alpha"] for folder in (first, later)]
    for text in (
        f"{len(new)} more labels, 0 new items and {len(set(new))} new annotators.",
        f"{len(flipped)} of 80 items changed label.",
        f"α changed from {alphas[0]:.2f} to {alphas[1]:.2f}",
    ):
        assert text in since["says"]
    assert content["items"]["text"][0].startswith("Text t")


def test_changed_verdicts_use_the_names_of_the_page(tmp_path):
    labels = ds.simulate(30, 6, 2, labels_per_item=6, seed=1).annotations
    model = ds.HPGM(n_chains=2, n_sweeps=20, seed=0).fit(labels)
    findings, earlier = collect_findings(model, labels), tmp_path / "earlier"
    write_run(Refinement(labels, model, "", 0), earlier)
    verdict = findings.verdicts.verdict
    before, verdict[0] = str(verdict[0]), "spam" if verdict[0] != "spam" else "typical"
    since = changes(earlier, findings, ds.describe(labels), [f"annotator {n}" for n in range(6)])
    assert since["verdicts"] == [["annotator 0", before, verdict[0]]]
    assert since["says"].startswith("0 more labels, 0 new items and 0 new annotators.")
    assert since["flipped"] == []
    with pytest.raises(DissensusError, match="is not the directory of a finished run"):
        ds.write_report(votes(), ds.MajorityVote().fit(votes()), tmp_path / "p.html", since=tmp_path)
    assert not (tmp_path / "p.html").exists()


@pytest.fixture
def old_and_new(crowd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = crowd.annotations
    rows = [(f"i{m}", f"w{n}", "abcd"[p]) for m, n, p in zip(*labels.columns, strict=True)]
    for name, part in (("old", rows[:-60]), ("new", rows[-60:])):
        write_csv(Path(f"{name}.csv"), "item,annotator,label", part)
        asked = [(*row, row[0]) for row in part]
        write_csv(Path(f"{name}-asked.csv"), "item,annotator,q1,q2", asked)


def quick_fit(file, folder, *options):
    settings = ["--set", "n_sweeps=20", "--set", "n_chains=2", "--no-report"]
    run("fit", file, "-m", "hpgm", *settings, *options, "-o", folder)


@pytest.mark.slow
def test_a_run_is_judged_planned_shown_and_updated(old_and_new):
    quick_fit("old.csv", "run")
    saved, again = (
        json.loads(run("annotators", path, "--json").stdout) for path in ("run", "run/model.safetensors")
    )
    assert saved["verdict"] == again["verdict"]
    assert list(saved) == list(again)
    np.testing.assert_allclose(saved["model_agreement"], again["model_agreement"], atol=1e-5)
    assert json.loads(run("plan", "run", "--budget", 30, "--json").stdout)["plan"]["budget"] == 30
    assert "With 30 more labels" in run("plan", "run", "--budget", 30, "-o", "plan.csv").stdout
    before, summary = Path("run/labels.csv").read_bytes(), Path("run/summary.json").read_bytes()
    # a complete export: old labels are skipped
    lines = Path("new.csv").read_text() + "".join(Path("old.csv").read_text().splitlines(True)[1:])
    Path("all.csv").write_text(lines)
    result = run("update", "run", "all.csv", "-o", "later", "--no-report")
    assert "60 labels added" in result.stdout
    assert "skipped 1,140 of 1,200 labels, which the run already has" in result.stderr
    assert json.loads(Path("later/summary.json").read_text())["updated"]["n_labels"] == 1140
    Path("odd.csv").write_text("item,annotator,label\ni1,w1,zebra\n")
    message = run("update", "run", "odd.csv", code=2).stderr
    assert "item 'i1' by annotator 'w1'" in message
    assert "--classes" in message
    assert (Path("run/labels.csv").read_bytes(), Path("run/summary.json").read_bytes()) == (before, summary)
    run("update", "run", "new.csv", "--no-report")
    assert Path("run/labels.csv").read_bytes() == Path("later/labels.csv").read_bytes()
    assert ds.load("run/model.safetensors").training_labels().n_labels == 1200
    assert "already has all 60 labels" in run("update", "run", "new.csv", code=2).stderr


@pytest.mark.slow
def test_a_run_remembers_its_columns_and_pseudonyms(old_and_new):
    quick_fit("old-asked.csv", "asked", "--label-column", "q1")
    run("report", "asked", "old-asked.csv", "-o", "page.html")
    assert "60 labels added" in run("update", "asked", "new-asked.csv", "--no-report").stdout
    assert json.loads(Path("asked/summary.json").read_text())["reading"] == {"label": "q1"}
    assert ds.load("asked/model.safetensors").n_labels_.sum() == 1200
    quick_fit("old.csv", "hidden", "--anonymise")
    run("update", "hidden", "new.csv", "-o", "later", code=2)
    assert not Path("later").exists()

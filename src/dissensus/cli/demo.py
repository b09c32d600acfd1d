"""``dissensus demo``: refine the labels of a simulated crowd (``datasets/comments.py``).

The answers of its population are known, but the models see the labels alone: how close does each come?
The directory ``crowd`` in the output contains

::

    annotations.csv   item, annotator, label
    population.csv    the population's distribution of each item, with the columns of a run's labels.csv
    annotators.csv    annotator, n_labels, in_group, clicks
    summary.json      command and seed
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.cli import options as opt
from dissensus.cli.app import last_result
from dissensus.cli.terminal import say, say_report, show_table

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.numerics import Array
    from dissensus.workflow.refine import Refinement

DEMO_STORY = (
    "{readers} readers call {comments} comments fine, rude or hateful, {each} readers for each comment.",
    "Some readers are strict; a quarter hear coded insults that the others miss; a few click at random.",
    "What would all readers of the platform say?",
)
DEMO_COLUMNS = ("model", "KL to the population", "95 % interval", "top class right")
#: Models compared with the one that ``fit`` uses: name and settings.
DEMO_MODELS: dict[str, dict[str, Any]] = {
    "empirical": {},
    "dawid-skene": {},
    "fmm": {"n_item_clusters": 16},
    "pgm": {"n_item_clusters": 12, "n_annotator_clusters": 8},
}


@opt.command("dissensus demo", "dissensus demo --seed 3 -o demo-output")
def demo(seed: opt.Seed = 0, output: opt.OutputDirectory = None, force: opt.Force = False) -> None:
    """Refine simulated labels and compare them with the population's answers."""
    from dissensus.datasets import comments
    from dissensus.tables.results import check_output, output_directory, write_summary
    from dissensus.workflow.refine import fit
    from dissensus.workflow.runs import write_run

    directory = output or Path("demo-output")
    check_output(directory, force)
    labels, population, readers = comments.draw_crowd(seed)
    run = fit(labels, seed=seed)
    rows = compare(run, population)
    command = opt.command_line()
    with last_result(), output_directory(directory, force) as folder:
        groups = {"in_group": readers.in_group, "clicks": readers.clicks}
        summary = {"command": command, "seed": seed}
        (folder / "crowd").mkdir()
        write_crowd(folder / "crowd", labels, population, summary, annotators=groups)
        page = {"title": "Fine, rude or hateful?", "run": str(directory / "refined")}
        write_run(run, folder / "refined", command=command, source="crowd/annotations.csv", page=page)
        compared = [dict(zip(DEMO_COLUMNS, row, strict=True)) for row in rows]
        write_summary(folder, summary | {"compared": compared})
    sizes = {"readers": labels.n_annotators, "comments": labels.n_items, "each": comments.READERS_PER_COMMENT}
    say(*(line.format(**sizes) for line in DEMO_STORY), "")
    show_table("How close each model comes to the population", list(DEMO_COLUMNS), rows, best=0)
    say("KL in nats: lower is better.", *explain(run, rows), "")
    say(f"Refined labels: {directory / 'refined' / 'labels.csv'}")
    say(f"The labels and the population's answers: {directory / 'crowd'}")
    say_report(directory / "refined" / "report.html")


def write_crowd(
    folder: Path, labels: Annotations, population: Array, summary: dict[str, Any], *, annotators: Any
) -> None:
    """Write labels, the population's answers and a summary; ``annotators`` are more columns of that table."""
    from dissensus.labels.vocabulary import arrow_table
    from dissensus.tables.results import label_columns, label_table, write_csv, write_summary

    top, n_labels = labels.classes[population.argmax(axis=1)], labels.counts.sum(axis=1)
    truth = label_columns(labels.items, top, labels.classes, population, n_labels)
    people = {"annotator": labels.annotators, "n_labels": labels.annotator_load} | annotators
    write_csv(label_table(labels), folder / "annotations.csv")
    write_csv(arrow_table(truth), folder / "population.csv")
    write_csv(arrow_table(people), folder / "annotators.csv")
    write_summary(folder, summary)


def compare(run: Refinement, population: Array) -> list[list[Any]]:
    """Return a row for each model, closest to the population first."""
    from dissensus.evaluate.bootstrap import bootstrap_interval
    from dissensus.metrics import accuracy, kl
    from dissensus.models import build_model, name_of
    from dissensus.models.counting import EmpiricalDistribution

    others = {name: build_model(name, settings, seed=run.seed) for name, settings in DEMO_MODELS.items()}
    fitted = {name: model.fit(run.annotations) for name, model in others.items()}
    fitted["raw counts"] = EmpiricalDistribution(smoothing=0.0).fit(run.annotations)
    fitted[name_of(run.model)] = run.model
    rows: list[list[Any]] = []
    for name, model in fitted.items():
        shares = model.label_distributions_
        distance = bootstrap_interval(kl, population, shares)
        interval = f"{distance.low:.3f} – {distance.high:.3f}"
        rows.append([name, distance.value, interval, f"{accuracy(population, shares):.1%}"])
    return sorted(rows, key=lambda row: row[1])


def explain(run: Refinement, rows: list[list[Any]]) -> list[str]:
    """Say which model ``fit`` uses, and that another may be closer to the population."""
    from dissensus.models import name_of

    used, closest = name_of(run.model), rows[0][0]
    reason = f"because {run.reason}" if run.reason else "the default"
    lines = [f"`fit` uses {used}, {reason}."]
    if closest != used:
        lines.append(f"{closest} is closer to the population here, but `fit` sees only the labels.")
    return lines

"""``dissensus fit``: labels in, refined labels out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from dissensus.cli.app import app, example, in_shell_words
from dissensus.cli.options import (
    ItemFeatures,
    Json,
    LabelFile,
    Page,
    Reading,
    TablesOutput,
    command_line,
    say_missing,
    say_written,
    stem,
    unbundled,
)
from dissensus.cli.settings import (
    Estimate,
    Fast,
    Machine,
    Represent,
    Settings,
    TestSize,
    Thorough,
    parse_represent,
)
from dissensus.cli.terminal import amounts, count, note, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.models.base import Model
    from dissensus.workflow.refine import Refinement


@app.command(
    epilog=example(
        "dissensus fit votes.csv",
        "dissensus fit votes.csv --items tweets.csv --gold gold.csv -o refined",
        "dissensus fit votes.csv --annotators people.csv --represent country=DE",
        "dissensus fit votes.csv --model fmm -k 12 --set alpha=1.5 --restarts 3",
        "dissensus fit votes.store --model pgm --test-size 0 --no-report --memory 8GB --checkpoint run",
    )
)
@unbundled
def fit(
    context: typer.Context,
    file: LabelFile,
    output: TablesOutput,
    reading: Reading,
    settings: Settings,
    features: ItemFeatures,
    page: Page,
    machine: Machine,
    estimate: Estimate = "population",
    represent: Represent = [],  # noqa: B006
    fast: Fast = False,
    thorough: Thorough = False,
    test_size: TestSize = 0.2,
    as_json: Json = False,
) -> None:
    """Refine labels: choose a model, fit it, and write label distributions, annotators and the model."""
    directory = output.directory(f"{stem(file, reading.question)}-refined")
    settings.check()
    machine.check()
    from dissensus.workflow.refine import refine
    from dissensus.workflow.runs import write_run

    with machine.reading():
        annotations = page.hidden(features.attached(reading.read(file)))
    if not page.anonymise:
        _say_models(annotations, f"{file}{reading.words()}")
    with machine.in_use(settings.jobs) as used:
        run = refine(
            annotations,
            settings.model,
            settings.chosen(),
            estimate=estimate,
            represent=parse_represent(represent),
            fast=fast,
            thorough=thorough,
            seed=settings.seed,
            n_jobs=settings.jobs,
            test_size=test_size,
        )
        with output.writing():
            summary = write_run(
                run,
                directory,
                command=command_line(context),
                source=str(file),
                reading=reading.given(),
                force=output.force,
                page=page.settings(file.name, features.text_column),
            )
        used.forget()
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    _show(run, summary)
    say_written(directory, summary["files"])


def _say_models(annotations: Annotations, file: str) -> None:
    """Where some annotators seem to be language models: how they count, and what else could be done."""
    from dissensus.annotators.judge_detection import models_by_name

    found = models_by_name(annotations)
    if 0 < len(found) < annotations.n_annotators:
        who = f"{count(len(found), 'annotator')} with the name of a language model ({found[0]}, for one)"
        note(
            f"{who} {'counts' if len(found) == 1 else 'count'} as people do; to compare them with people: "
            f"dissensus judges {file}; to leave the vote to people: --annotators TABLE --represent kind=human"
        )


def _say_differing(annotations: Annotations) -> None:
    """Annotators who gave an item different labels: all of them count, and that is worth a word."""
    from dissensus.labels.description import repeated_pairs

    differing = 0 if annotations.anonymous else repeated_pairs(annotations)[1]
    if differing:
        say(
            f"{count(differing, 'pair')} of item and annotator with differing labels, all kept (--duplicates)"
        )


def _show(run: Refinement, summary: dict[str, Any]) -> None:
    from dissensus.labels.description import remarks

    say(amounts(run.annotations))
    _say_differing(run.annotations)
    for remark in remarks(run.annotations):
        note(in_shell_words(remark, {"--duplicates"}))
    if run.held_out:
        rows, best = _held_out_rows(run)
        hidden = count(run.held_out[0].n_hidden, "hidden label")
        title = f"Mean log-probability of {hidden} (nats, higher is better)"
        columns = ["model", "given item and annotator", "given item", "behind the best", "seconds"]
        show_table(title, columns, rows, best)
        _say_pool(run)
    stopped = run.model.stopped_
    how = "computed at once, without iterations" if stopped == "closed form" else f"stopped by {stopped}"
    say(f"Model: {run.model}; {how}")
    _say_convergence(run.model)
    if run.reason:
        say(f"Why: {run.reason}")
    if getattr(run.model, "estimate", "truth") != "truth":
        say("It supposes one true class an item: the shares are the answers of its crowd (--estimate truth)")
    _say_gold(run, summary["gold_accuracy"])


def _say_pool(run: Refinement) -> None:
    """Why the pool for ordered classes scores as HPGM does, where it does."""
    from dissensus.models import name_of

    scores = {name_of(row.model): (row.score, row.score_items) for row in run.held_out}
    if "ordinal" in scores and scores["ordinal"] == scores.get("hpgm"):
        say("ordinal pools hpgm with graded response; here hpgm has all of the weight: both score the same")


def _say_convergence(model: Model) -> None:
    """On how few items the chains of a sampled model agree, where they do not on most, and what to do."""
    from dissensus.models import name_of
    from dissensus.models.sampled import MOST, Sampled

    if isinstance(model, Sampled) and model.settled_items_ < MOST:
        note(
            f"the chains agree on the shares of {model.settled_items_:.0%} of the items (split-R̂ up to 1.1), "
            "and the intervals of the others hold what the chains say in all; longer chains: "
            f"--model {name_of(model)} --set n_sweeps=1000"
        )


def _say_gold(run: Refinement, share_right: float | None) -> None:
    """How right the answers are; where gold trained the model, with and without."""
    if run.gold is not None:
        crossed, plain = run.gold.cross_fitted, run.gold.plain
        say(
            f"Gold labels: {crossed.value:.1%} right ({crossed.low:.1%} to {crossed.high:.1%}) on "
            f"{count(run.gold.n_items, 'item')}, each answered without the help of its own gold label, only "
            f"with that of others; {plain.value:.1%} without any gold"
        )
    elif share_right is not None:
        say(f"Gold labels: {share_right:.1%} right; they trained nothing (--estimate truth learns from them)")


def _held_out_rows(run: Refinement) -> tuple[list[list[Any]], int]:
    from dissensus.models import title_of

    rows = [
        [title_of(row.model), row.score, row.score_items, str(row.gap(run.estimate)), f"{row.seconds:.2f}"]
        for row in run.held_out
    ]
    scores = [row.measure(run.estimate) for row in run.held_out]
    return rows, scores.index(max(scores))

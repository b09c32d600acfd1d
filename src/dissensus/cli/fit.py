"""``dissensus fit``, ``rank`` and ``update``: labels in, refined labels or ranks out; more labels later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example, in_shell_words, option
from dissensus.cli.options import (
    ItemFeatures,
    Json,
    LabelFile,
    Output,
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
    from dissensus.workflow.refine import Refinement

RANKS_SHOWN = 20


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
    from dissensus.workflow.refine import fit
    from dissensus.workflow.runs import write_run

    with machine.reading():
        annotations = page.hidden(features.attached(reading.read(file)))
    if not page.anonymise:
        _say_models(annotations, f"{file}{reading.words()}")
    with machine.in_use(settings.jobs) as used:
        run = fit(
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


def _show(run: Refinement, summary: dict[str, Any]) -> None:
    from dissensus.labels.description import remarks, repeated_pairs
    from dissensus.models import title_of

    say(amounts(run.annotations))
    differing = 0 if run.annotations.anonymous else repeated_pairs(run.annotations)[1]
    if differing:
        pairs = count(differing, "pair")
        say(f"{pairs} of item and annotator with differing labels, all kept (--duplicates)")
    for remark in remarks(run.annotations):
        note(in_shell_words(remark, {"--duplicates"}))
    if run.held_out:
        rows = [
            [
                title_of(row.model),
                row.score,
                row.score_items,
                str(row.gap(run.estimate)),
                f"{row.seconds:.2f}",
            ]
            for row in run.held_out
        ]
        scores = [row.measure(run.estimate) for row in run.held_out]
        hidden = count(run.held_out[0].n_hidden, "hidden label")
        title = f"Mean log-probability of {hidden} (nats, higher is better)"
        columns = ["model", "given item and annotator", "given item", "behind the best", "seconds"]
        show_table(title, columns, rows, scores.index(max(scores)))
        _say_pool(run)
    _show_model(run)
    if run.gold is not None:
        crossed, plain = run.gold.cross_fitted, run.gold.plain
        say(
            f"Gold labels: {crossed.value:.1%} right ({crossed.low:.1%} to {crossed.high:.1%}) on "
            f"{count(run.gold.n_items, 'item')}, each answered without the help of its own gold label, only "
            f"with that of others; {plain.value:.1%} without any gold"
        )
    elif summary["gold_accuracy"] is not None:
        right = f"{summary['gold_accuracy']:.1%} right"
        say(f"Gold labels: {right}; they trained nothing (--estimate truth learns from them)")


def _say_pool(run: Refinement) -> None:
    """Why the pool for ordered classes scores as HPGM does, where it does."""
    from dissensus.models import name_of

    scores = {name_of(row.model): (row.score, row.score_items) for row in run.held_out}
    if "ordinal" in scores and scores["ordinal"] == scores.get("hpgm"):
        say("ordinal pools hpgm with graded response; here hpgm has all of the weight: both score the same")


def _show_model(run: Refinement) -> None:
    """Which model it is, how its fit ended, and why it was taken."""
    from dissensus.models import name_of
    from dissensus.models.sampled import MOST_ITEMS, SampledMixin

    model, stopped = run.model, run.model.stopped_
    how = "computed at once, without iterations" if stopped == "closed form" else f"stopped by {stopped}"
    say(f"Model: {model}; {how}")
    if isinstance(model, SampledMixin) and model.settled_items_ < MOST_ITEMS:
        note(
            f"the chains agree on the shares of {model.settled_items_:.0%} of the items (split-R̂ up to 1.1), "
            "and the intervals of the others hold what the chains say in all; longer chains: "
            f"--model {name_of(model)} --set n_sweeps=1000"
        )
    if run.reason:
        say(f"Why: {run.reason}")
    if getattr(model, "estimate", "truth") != "truth":
        say("It supposes one true class an item: the shares are the answers of its crowd (--estimate truth)")


# ---- comparisons --------------------------------------------------------------------------------------


@app.command(
    epilog=example(
        "dissensus rank battles.csv",
        "dissensus rank preferences.jsonl --annotator-column judge -o ranking --no-position",
    )
)
@unbundled
def rank(
    context: typer.Context,
    file: LabelFile,
    output: Output,
    reading: Reading,
    page: Page,
    position: Annotated[
        bool, option(None, "Let annotators prefer the left or the right answer.", "--position/--no-position")
    ] = True,
    pair_effects: Annotated[
        bool,
        option(
            None,
            "Let a pair of answers differ from what their scores say.",
            "--pair-effects/--no-pair-effects",
        ),
    ] = True,
    seed: Annotated[int, option("N", "Seed of the random numbers.")] = 0,
    as_json: Json = False,
) -> None:
    """Rank what was compared in pairs: scores and ranks with intervals, and how reliable annotators are."""
    directory = output.directory(f"{stem(file)}-ranked")
    from dissensus.tables.layouts import refuse_other_type
    from dissensus.workflow.refine import fit
    from dissensus.workflow.runs import write_run

    annotations = reading.read(file)
    refuse_other_type(annotations, "pairwise")
    settings = {"position": position, "pair_effects": pair_effects}
    run = fit(annotations, "bradley-terry", settings, seed=seed)
    summary = write_run(
        run,
        directory,
        command=command_line(context),
        source=str(file),
        force=output.force,
        page=page.settings(file.name, None),
    )
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    say(amounts(annotations))
    columns = ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    found = next(run.model.label_pieces())
    values = [found[name].to_pylist() if name == "item" else found[name].tolist() for name in columns]
    rows = [list(row) for row in zip(*values, strict=True)][:RANKS_SHOWN]
    show_table("Scores (log-odds) and ranks with 95 % intervals", columns, rows)
    if len(values[0]) > RANKS_SHOWN:
        say(f"… and {len(values[0]) - RANKS_SHOWN:,} more in labels.csv")
    say_written(directory, summary["files"])


# ---- labels over time ---------------------------------------------------------------------------------


@app.command(
    epilog=example("dissensus update refined monday.csv", "dissensus update refined new.csv -o later")
)
@unbundled
def update(
    context: typer.Context,
    place: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run of the model hpgm.")],
    file: Annotated[
        Path, typer.Argument(metavar="NEW", help="The labels to add, in any form that fit reads.")
    ],
    reading: Reading,
    page: Page,
    output: Annotated[
        Path | None, option("DIR", "Directory to write (if left out: RUN itself).", "--output", "-o")
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels to a run: the sampler goes on from its last state, in a fraction of a fit's time."""
    from dissensus.workflow.runs import update_run

    summary = update_run(
        place,
        reading.as_in(place).read(file),
        output,
        command=command_line(context),
        source=str(file),
        page=page.settings(file.name, None),
    )
    directory = output or place
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    known = summary["data"]["n_labels"]
    say(f"{count(known - summary['updated']['n_labels'], 'label')} added, {known:,} in all")
    say_written(directory, summary["files"])

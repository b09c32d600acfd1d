"""``dissensus fit`` and ``update``: labels in, refined labels and a page out; more labels later."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import options as opt
from dissensus.cli.app import app, argument, examples, last_result, option
from dissensus.cli.terminal import amounts, count, note, say, say_missing, say_page, show_json, show_table
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.workflow.refine import Refinement

RANKS_SHOWN = 20


@app.command(
    epilog=examples(
        "dissensus fit votes.csv",
        "dissensus fit votes.csv --items tweets.csv --gold gold.csv -o refined",
        "dissensus fit votes.csv --model fmm -k 12 --set alpha=1.5",
    )
)
def fit(
    context: typer.Context,
    file: opt.LabelFile,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    gold: Annotated[Path | None, option("FILE", "Table of right labels: item, label.")] = None,
    text_column: Annotated[str | None, option("NAME", "Column of the items' text.")] = None,
    features: opt.Features = None,
    model: opt.Model = "auto",
    item_clusters: opt.ItemClusters = None,
    annotator_clusters: opt.AnnotatorClusters = None,
    set: opt.SetOption = [],
    estimate: Annotated[str, option("WHAT", "population, annotators or truth.")] = "population",
    represent: Annotated[list[str], option("COLUMN=VALUE", "Whose population; repeatable.")] = [],
    fast: Annotated[bool, option(None, "Leave sampled models out: seconds, not minutes.", "--fast")] = False,
    thorough: Annotated[bool, option(None, "Also try the slowest model, latent.", "--thorough")] = False,
    test_size: Annotated[float, option("SHARE", "Share of labels hidden to judge models (0.2).")] = 0.2,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    no_report: opt.NoReport = False,
    title: opt.Title = None,
    anonymise: opt.Anonymise = False,
    safe_csv: opt.SafeCsv = False,
    memory: Annotated[str | None, option("SIZE", "Memory that may be used, such as 8GB.")] = None,
    checkpoint: Annotated[Path | None, option("DIR", "Keep the fit's state here; a rerun goes on.")] = None,
    cluster: opt.Cluster = None,
    scratch: opt.Scratch = None,
    verbose: Annotated[bool, option(None, "Show the models compared, too.", "--verbose", "-v")] = False,
    as_json: opt.Json = False,
) -> None:
    """Refine labels, and write a page to look at."""
    from dissensus.models import build_model
    from dissensus.params import n_bytes
    from dissensus.tables.results import check_output

    directory = output or Path(f"{opt.stem(file)}-refined")
    check_output(directory, force)
    sizes = dict(zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True))
    settings = {name: size for name, size in sizes.items() if size is not None}
    settings |= dict(map(opt.parse_setting, set))
    if model != "auto":  # refuse what cannot be before any file is read
        build_model(model, settings, seed=seed, n_jobs=jobs)
    elif settings:
        raise ParameterError(f"{next(iter(settings))}: name the model that should take it, as in --model pgm")
    allowed = None if memory is None else n_bytes(memory, "fit")
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.source import within_memory
    from dissensus.workflow.refine import fit as refine
    from dissensus.workflow.runs import write_run

    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    with within_memory(allowed):
        labels = columns.read(file, items=items, annotators=annotators, gold=gold, text_column=text_column)
    labels = opt.with_features(labels, features)
    if anonymise:
        from dissensus.annotators.pseudonyms import pseudonymised

        labels = pseudonymised(labels)
    limits: dict[str, Any] = {
        "cluster": cluster,
        "scratch": scratch,
        "memory": memory,
        "checkpoint": checkpoint,
    }
    used: AbstractContextManager[Any] = nullcontext()
    if any(value is not None for value in limits.values()):
        from dissensus.large.resources import resources

        used = resources(n_workers=jobs, **limits)
    kept = f"{checkpoint} keeps the fit: run the same again to go on"
    with (
        used as resource,
        opt.resumable(lambda: resource is not None and any(map(Path.is_dir, resource.used)), kept),
    ):
        run = refine(
            labels,
            model,
            settings,
            estimate=estimate,
            represent=parse_represent(represent),
            fast=fast,
            thorough=thorough,
            seed=seed,
            n_jobs=jobs,
            test_size=test_size,
        )
        page = {"title": title or file.name, "anonymise": anonymise}
        with for_spreadsheets(safe_csv), last_result():
            summary = write_run(
                run,
                directory,
                command=opt.command_line(context),
                source=str(file),
                reading=columns.given(),
                force=force,
                page=None if no_report else page,
            )
        if resource is not None:
            resource.forget()
    if as_json:
        show_json(summary)
        return
    _show(run, summary, directory, verbose)
    if not anonymise:
        _note_models(labels, file)


def parse_represent(texts: list[str]) -> dict[str, list[str]] | None:
    """Read ``column=value``, any number of them: values of one column are alternatives; None for none."""
    wanted: dict[str, list[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not (equals and column.strip()):
            raise ParameterError(f"{text}: write it as column=value, as in country=DE")
        wanted.setdefault(column.strip(), []).append(value.strip())
    return wanted or None


def _note_models(labels: Annotations, file: Path) -> None:
    """Where some annotators seem to be language models, say how they count and what else could be done."""
    from dissensus.annotators.judge_detection import models_by_name

    found = models_by_name(labels)
    if 0 < len(found) < labels.n_annotators:
        note(
            f"{count(len(found), 'language model')} by name ({found[0]}, for one) among the annotators; to "
            f"compare: dissensus judges {file}; to count people alone: --annotators T --represent kind=human"
        )


def _show(run: Refinement, summary: dict[str, Any], directory: Path, verbose: bool) -> None:
    """Show what the page says first, where it is, and with ``verbose`` how the model was chosen."""
    say(amounts(run.annotations))
    for step in summary["next_steps"]:
        say(f"• {step}")
    if run.annotations.label_type == "pairwise" and not run.model.answers_are_classes:
        _show_ranks(run)
    if run.gold is not None:
        crossed, plain = run.gold.cross_fitted, run.gold.plain
        ends, items = f"{crossed.low:.1%} to {crossed.high:.1%}", count(run.gold.n_items, "item")
        say(f"Gold labels: {crossed.value:.1%} right ({ends}) on {items}, each without its own gold label;")
        say(f"{plain.value:.1%} without any gold")
    elif summary["gold_accuracy"] is not None:
        right = f"{summary['gold_accuracy']:.1%} right"
        say(f"Gold labels: {right}; they trained nothing (--estimate truth learns from them)")
    if verbose:
        _show_model(run)
    if "report.html" in summary["files"]:
        say_page(directory / "report.html")
    opt.say_written(directory, summary["files"])
    say_missing(summary["report_missing"], directory)


def _show_ranks(run: Refinement) -> None:
    columns = ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    pieces = next(run.model.label_pieces())
    values = [pieces[name].to_pylist() if name == "item" else pieces[name].tolist() for name in columns]
    rows = [list(row) for row in zip(*values, strict=True)][:RANKS_SHOWN]
    title = f"Scores (log-odds) and ranks with 95 % intervals, {len(rows)} of {len(values[0]):,}"
    show_table(title, columns, rows)


def _show_model(run: Refinement) -> None:
    """Show the models compared, which one it is, how its fit ended, and why it was taken."""
    from dissensus.models import title_of

    if run.held_out:
        rows = []
        for row in run.held_out:
            gap, seconds = str(row.gap(run.estimate)), f"{row.seconds:.2f}"
            rows.append([title_of(row.model), row.score, row.score_items, gap, seconds])
        scores = [row.measure(run.estimate) for row in run.held_out]
        hidden = count(run.held_out[0].n_hidden, "hidden label")
        title = f"Mean log-probability of {hidden} (nats, higher is better)"
        columns = ["model", "given item and annotator", "given item", "behind the best", "seconds"]
        show_table(title, columns, rows, scores.index(max(scores)))
    stopped, settled = run.model.stopped_, getattr(run.model, "settled_items_", None)
    if settled is not None:
        say(f"The chains agree on the shares of {settled:.0%} of the items (split-R̂ up to 1.1)")
    how = "computed at once, without iterations" if stopped == "closed form" else f"stopped by {stopped}"
    say(f"Model: {run.model}; {how}")
    if run.reason:
        say(f"Why: {run.reason}")


# ---- labels over time ---------------------------------------------------------------------------------


@app.command(
    epilog=examples("dissensus update refined monday.csv", "dissensus update refined new.csv -o later")
)
def update(
    context: typer.Context,
    place: Annotated[Path, argument("RUN", "A finished run.")],
    file: Annotated[Path, argument("NEW", "The labels to add.")],
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    output: opt.OutputDirectory = None,
    no_report: opt.NoReport = False,
    as_json: opt.Json = False,
) -> None:
    """Add labels to a run."""
    from dissensus.workflow.runs import reading_of, update_run

    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    new = columns.read(file, like=reading_of(place), **({} if items is None else {"items": items}))
    with last_result():
        summary = update_run(
            place,
            new,
            output,
            command=opt.command_line(context),
            source=str(file),
            page=None if no_report else {"title": file.name},
        )
    directory = output or place
    if as_json:
        show_json(summary)
        return
    known, updated = summary["data"]["n_labels"], summary["updated"]
    fresh = count(updated["new_items"], "new item"), count(updated["new_annotators"], "new annotator")
    say(f"{count(known - updated['n_labels'], 'label')} added, {fresh[0]}, {fresh[1]}; {known:,} in all")
    for step in summary["next_steps"]:
        say(f"• {step}")
    if "report.html" in summary["files"]:
        say_page(directory / "report.html")
    opt.say_written(directory, summary["files"])
    say_missing(summary["report_missing"], directory)

"""``dissensus fit`` and ``update``: refine labels, and add new labels to a finished run."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import argument, last_result, option
from dissensus.cli.terminal import amounts, count, note, say, say_report, say_written, show_json, show_table

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.workflow.refine import Refinement

RANKS_SHOWN = 20  # rows of the table of ranks


@opt.command(
    "dissensus fit votes.csv",
    "dissensus fit votes.csv --items tweets.csv --gold gold.csv -o refined",
    "dissensus fit votes.csv --model fmm -k 12 --set alpha=1.5",
)
def fit(
    file: opt.LabelFile,
    columns: opt.Columns,
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    gold: Annotated[Path | None, option("FILE", "Table of gold labels: item, label.")] = None,
    text_column: opt.TextColumn = None,
    features: opt.Features = None,
    model: opt.Model = "auto",
    item_clusters: opt.ItemClusters = None,
    annotator_clusters: opt.AnnotatorClusters = None,
    set: opt.SetOption = [],
    estimate: Annotated[str, option("WHAT", "population or truth.")] = "population",
    represent: Annotated[list[str], option("COLUMN=VALUE", "Population to estimate (see above).")] = [],
    fast: Annotated[bool, option(None, "Fewer chains: a quarter of the time.", "--fast")] = False,
    minutes: Annotated[float | None, option("MINUTES", "Add chains, at most for this long.")] = None,
    compare: Annotated[bool, option(None, "Compare models on hidden labels.", "--compare")] = False,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    no_report: opt.NoReport = False,
    title: opt.Title = None,
    anonymise: opt.Anonymise = False,
    safe_csv: opt.SafeCsv = False,
    memory: Annotated[str | None, option("SIZE", "Memory limit, such as 8GB.")] = None,
    checkpoint: Annotated[
        Path | None, option("DIR", "Save the state here; the same command resumes.")
    ] = None,
    cluster: opt.Cluster = None,
    scratch: opt.Scratch = None,
    verbose: Annotated[
        bool, option(None, "Also show the model and how it stopped.", "--verbose", "-v")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Refine labels, and write tables and an HTML report.

    The results go to the directory votes-refined for a file votes.csv, unless -o names another one.

    --estimate population: the share of each class in the population that the annotators come from;
    truth: the one right class of each item.

    --represent country=DE: the population consists of annotators with country DE in the table of
    --annotators; labels of other annotators still inform the model about the items.
    """
    from dissensus.models import build_model
    from dissensus.params import n_bytes
    from dissensus.tables.results import check_output

    directory = output or Path(f"{opt.stem(file)}-refined")
    check_output(directory, force)
    sizes = zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True)
    settings = {name: size for name, size in sizes if size is not None} | opt.parse_settings(set)
    if model != "auto":  # check the settings before reading any file
        build_model(model, settings, seed=seed, n_jobs=jobs)
    allowed = None if memory is None else n_bytes(memory, "fit")
    from dissensus.tables.source import within_memory
    from dissensus.workflow.refine import fit as refine
    from dissensus.workflow.runs import write_run

    with within_memory(allowed):
        labels = columns.read(file, items=items, annotators=annotators, gold=gold, text_column=text_column)
    labels = opt.attach_features(labels, features)
    origin: dict[str, Any] = {"command": opt.command_line(), "source": opt.shown_path(file)}
    origin["reading"] = columns.settings()
    if anonymise:
        from dissensus.annotators.pseudonyms import HIDDEN, contains_id, pseudonymise, without_words

        ids = [str(name) for name in labels.annotators]
        labels = pseudonymise(labels)
        origin["command"] = without_words(origin["command"], ids)
        if contains_id(str(file), ids):
            origin["source"], title = HIDDEN, title or HIDDEN
        read = origin["reading"].pop("annotator", "")
        if read and not contains_id(read if isinstance(read, str) else ",".join(read), ids):
            origin["reading"]["annotator"] = read
    question: dict[str, Any] = {"estimate": estimate, "represent": parse_represent(represent)}
    effort: dict[str, Any] = {"fast": fast, "minutes": minutes, "compare": compare, "n_jobs": jobs}
    page = None if no_report else {"title": title or opt.page_title(file), "anonymise": anonymise}
    limits: Any = {"cluster": cluster, "scratch": scratch, "memory": memory, "checkpoint": checkpoint}
    limited: AbstractContextManager[Any] = nullcontext()
    if any(value is not None for value in limits.values()):
        from dissensus.large.resources import resources

        limited = resources(n_workers=jobs, **limits)
    resume = f"the fit is saved in {checkpoint}; run the same command to resume"

    def has_checkpoint() -> bool:
        return used is not None and any(map(Path.is_dir, used.used))

    with limited as used, opt.resumable(has_checkpoint, resume):
        run = refine(labels, model, settings, **question, **effort, seed=seed)
        with last_result(safe_csv):
            summary = write_run(run, directory, **origin, force=force, page=page)
        if used is not None:
            used.forget()
    if as_json:
        show_json(summary)
        return
    _show(run, summary, directory, verbose)
    if not anonymise:
        _note_models(labels, file)


def parse_represent(texts: list[str]) -> dict[str, list[str]] | None:
    """Parse ``column=value`` texts; several values of one column are alternatives."""
    attributes: dict[str, list[str]] = {}
    for text in texts:
        column, value = opt.parse_pair(text, "column=value, as in country=DE")
        attributes.setdefault(column, []).append(value)
    return attributes or None


def _note_models(labels: Annotations, file: Path) -> None:
    """Note annotators that seem to be language models, and the commands for treating them differently."""
    from dissensus.annotators.judge_detection import models_by_name

    models = models_by_name(labels)
    if 0 < len(models) < labels.n_annotators:
        note(
            f"{count(len(models), 'annotator')} with the name of a language model, such as {models[0]}; "
            f"to compare with humans: dissensus judges {file}; to estimate the answers of humans only: "
            "--annotators FILE --represent kind=human"
        )


def _show(run: Refinement, summary: dict[str, Any], directory: Path, verbose: bool) -> None:
    """Print the main findings and the files written; with ``verbose`` also the model and how it stopped."""
    say(amounts(run.annotations))
    if run.model.uses_features:
        say("The model uses the features or texts of the items.")
    _show_steps(summary)
    if run.annotations.label_type == "pairwise" and not run.model.answers_are_classes:
        _show_ranks(run)
    if run.gold is not None:
        cross, plain = run.gold.cross_fitted, run.gold.plain
        interval, items = f"{cross.low:.1%} to {cross.high:.1%}", count(run.gold.n_items, "item")
        say(f"Accuracy on {items} with gold labels: {cross.value:.1%} ({interval}, cross-fitted)")
        say(f"Accuracy without training on gold labels: {plain.value:.1%}")
    elif summary["gold_accuracy"] is not None:
        accuracy = f"{summary['gold_accuracy']:.1%}"
        say(f"Accuracy on gold labels: {accuracy} (not used for training; --estimate truth uses them)")
    if run.held_out:
        _show_comparison(run)
    if verbose:
        stopped = run.model.stopped_
        how = "closed form, no iterations" if stopped == "closed form" else f"stopped: {stopped}"
        say(f"Model: {run.model} ({how})")
        if run.reason:
            say(f"Why: {run.reason}")
    if "report.html" in summary["files"]:
        say_report(directory / "report.html")
    say_written(directory, summary)


def _show_steps(summary: dict[str, Any]) -> None:
    """Print the next steps, how far another run would move the shares, and what to do after an update."""
    for step in summary["next_steps"]:
        say(f"• {step}")
    if summary["run_difference"] is not None:
        from dissensus.models.sampled import MAX_RUN_DIFFERENCE, second_run

        more = " Fit again for a smaller difference." if "updated" in summary else ""
        say(second_run(summary["run_difference"]) + more * (summary["run_difference"] > MAX_RUN_DIFFERENCE))


def _show_ranks(run: Refinement) -> None:
    """Print the scores and ranks of compared items."""
    columns = ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    table = next(run.model.label_batches())
    values = [table[name].to_pylist() if name == "item" else table[name].tolist() for name in columns]
    rows = [list(row) for row in zip(*values, strict=True)][:RANKS_SHOWN]
    title = f"Scores (log-odds) and ranks with 95 % intervals ({len(rows)} of {len(values[0]):,} items)"
    show_table(title, columns, rows)


def _show_comparison(run: Refinement) -> None:
    """Print the scores of the models on hidden labels, best first."""
    from dissensus.models import title_of

    columns = ["model", "given item", "difference to best"]
    columns += ["given item and annotator", "difference to best ", "s"]
    rows = []
    for row in run.held_out:
        scores = [row.score_items, str(row.behind_items), row.score, str(row.behind)]
        rows.append([title_of(row.model), *scores, f"{row.seconds:.1f}"])
    hidden = count(run.held_out[0].n_hidden, "hidden label")
    show_table(f"Mean log-probability of {hidden} (nats, higher is better)", columns, rows, 0)


# ---- labels over time ---------------------------------------------------------------------------------


@opt.command("dissensus update refined monday.csv", "dissensus update refined new.csv -o later")
def update(
    path: Annotated[Path, argument("RUN", "Directory of a finished run.")],
    file: Annotated[Path, argument("NEW", "File of new labels.")],
    columns: opt.Columns,
    items: opt.ItemTable = None,
    output: opt.OutputDirectory = None,
    no_report: opt.NoReport = False,
    as_json: opt.Json = False,
) -> None:
    """Add new labels to a finished run.

    The run is replaced, unless -o names another directory.
    """
    from dissensus.workflow.runs import reading_of, update_run

    new = columns.read(file, like=reading_of(path), **({} if items is None else {"items": items}))
    origin = {"command": opt.command_line(), "source": opt.shown_path(file)}
    page = None if no_report else {"title": opt.page_title(file)}
    with last_result():
        summary = update_run(path, new, output, **origin, page=page)
    directory = output or path
    if as_json:
        show_json(summary)
        return
    total, updated = summary["data"]["n_labels"], summary["updated"]
    fresh = [count(updated[f"new_{name}s"], f"new {name}") for name in ("item", "annotator")]
    say(f"{count(total - updated['n_labels'], 'label')} added, {', '.join(fresh)}; {total:,} labels in total")
    _show_steps(summary)
    if "report.html" in summary["files"]:
        say_report(directory / "report.html")
    say_written(directory, summary)

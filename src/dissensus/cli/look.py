"""``dissensus describe``, ``annotators`` and ``report``: what is in labels, who gave them, the page."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import app, argument, examples, last_result, option
from dissensus.cli.terminal import count, say, say_page, show_json, show_table
from dissensus.errors import warn

SHOWN = 10  # annotators of each verdict in the table
VERDICTS = ("typical", "minority view", "systematic error", "spam", "too few labels")


@app.command(
    epilog=examples(
        "dissensus describe votes.csv",
        "dissensus describe ratings.tsv --label-column grade --classes 'low<mid<high'",
    )
)
def describe(
    place: opt.LabelsOrRun,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    as_json: opt.Json = False,
) -> None:
    """Say what is in a file: agreement, labels, classes."""
    from dissensus.labels import description
    from dissensus.workflow.runs import open_labels

    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    described = description.describe(open_labels(place, columns.read))
    for remark in described.notes:
        warn(remark)
    if as_json:
        show_json(described.to_dict())
    else:
        say(*(line for line in described.as_text().splitlines() if not line.startswith("note: ")))


@app.command(epilog=examples("dissensus annotators votes.csv", "dissensus annotators refined -o who.csv"))
def annotators(
    place: opt.LabelsOrRun,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    output: opt.OutputTable = None,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    safe_csv: opt.SafeCsv = False,
    as_json: opt.Json = False,
) -> None:
    """Tell spam, minority views and errors apart."""
    from dissensus.workflow.runs import people_of

    read = opt.Columns(item_column, annotator_column, label_column, label_type, classes).read
    columns, views = people_of(place, read, seed=seed, n_jobs=jobs)
    if output is not None:
        opt.write_columns(columns, output, safe_csv)
    if as_json:
        show_json(columns)
        return
    if "verdict" in columns:
        _show_verdicts(columns, views)
    else:  # numbers have no verdicts, only how far each annotator is from the others
        rows = list(zip(*(list(values)[: 2 * SHOWN] for values in columns.values()), strict=True))
        show_table("Annotators", list(columns), rows)
    if output is not None:
        say(f"Wrote {output}: {count(len(columns['annotator']), 'annotator')}")


def _show_verdicts(columns: dict[str, Any], views: str) -> None:
    verdicts = list(map(str, columns["verdict"]))
    say("; ".join(f"{verdicts.count(one):,} {one}" for one in VERDICTS if one in verdicts))
    say(f"Views: {views}")
    # the largest bias first, as far as it is beyond its error; those without one last
    beyond = [abs(bias) - error for bias, error in zip(columns["bias"], columns["bias_error"], strict=True)]
    beyond = [float("-inf") if value != value else value for value in beyond]
    most_biased = sorted(range(len(verdicts)), key=lambda n: -beyond[n])
    rows = []
    for verdict in (*reversed(VERDICTS[1:4]), VERDICTS[0], VERDICTS[4]):
        for n in [n for n in most_biased if verdicts[n] == verdict][:SHOWN]:
            probability = columns["probability"][n]
            chance = "–" if probability != probability else f"{probability:.0%}"
            agreement = f"{columns['model_agreement'][n]:.0%}"
            bias = bias_words(columns["bias_of"][n], columns["bias"][n], columns["bias_error"][n])
            who, evidence = str(columns["annotator"][n]), str(columns["evidence"][n])
            rows.append([who, verdict, chance, int(columns["n_labels"][n]), agreement, bias, evidence])
    title = f"Annotators (up to {SHOWN} of each verdict, the most biased first)"
    names = ["annotator", "verdict", "probability", "labels", "model agreement", "bias", "evidence"]
    show_table(title, names, rows)
    say("Model agreement: chance of the population's answer; bias: beside the others on the same items")


def bias_words(of: str, bias: float, error: float) -> str:
    """Write a bias with its 95 % interval: of the share of a class, or of grades."""
    if bias != bias:
        return "–"
    if not of:
        return f"{bias:+.2f}" + ("" if error != error else f" ± {error:.2f}")
    return f"{of} {bias:+.0%}" + ("" if error != error else f" ± {error:.0%}")


@app.command(
    epilog=examples(
        "dissensus report refined", "dissensus report refined --items tweets.csv --anonymise -o pilot.html"
    )
)
def report(
    place: opt.LabelsOrRun,
    file: Annotated[Path | None, argument("[FILE]", "The labels of RUN, where it kept none.")] = None,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    output: Annotated[Path | None, option("FILE", "The page to write.", "--output", "-o")] = None,
    title: opt.Title = None,
    anonymise: opt.Anonymise = False,
    since: Annotated[Path | None, option("RUN", "An earlier run: say what changed since then.")] = None,
    time_column: Annotated[str | None, option("NAME", "Column of FILE with the time of each label.")] = None,
) -> None:
    """Write the page of a run again."""
    from dissensus.report.page import write_report
    from dissensus.tables.layouts import read_times
    from dissensus.tables.results import changed_file
    from dissensus.workflow.runs import REPORT, open_run

    read = opt.Columns(item_column, annotator_column, label_column, label_type, classes).read
    saved = open_run(place, read, file, items=items)
    target = output or (place / REPORT if place.is_dir() and saved.summary else Path(REPORT))
    in_run = place.is_dir() and target.resolve() == (place / REPORT).resolve()
    with last_result(), changed_file(place, REPORT) if in_run else nullcontext(target) as page:
        write_report(
            saved.labels,
            saved.model,
            page,
            title=title or (file or place).name,
            anonymise=anonymise,
            run=str(place) if place.is_dir() else "",
            since=since,
            times=None if time_column is None else read_times(file or place, time_column, saved.labels),
            **saved.evidence(),
        )
    say_page(target)

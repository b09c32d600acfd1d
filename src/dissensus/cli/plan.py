"""``dissensus plan`` and ``dissensus queue``: how many more labels, of which items; the next batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dissensus.cli.app import app, example, option
from dissensus.cli.options import Json, LabelsOfRun, LabelsOrRun, Reading, SafeCsv, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, Seed
from dissensus.cli.terminal import count, note, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.annotators.plan import LabelPlan

SHOWN, ASKED = 10, 8  # items and annotators named


@app.command(
    epilog=example("dissensus plan votes.csv --budget 500", "dissensus plan refined --target-interval 0.2")
)
@unbundled
def plan(
    place: LabelsOrRun,
    reading: Reading,
    budget: Annotated[int | None, option("N", "Number of labels that can be paid for.")] = None,
    target_interval: Annotated[
        float | None, option("WIDTH", "Wanted width of the interval of each item's most probable class.")
    ] = None,
    target_alpha_width: Annotated[float | None, option("WIDTH", "Wanted width of the interval of α.")] = None,
    interval: Annotated[float, option("SHARE", "Size of the intervals, such as 0.9.")] = 0.9,
    output: Annotated[
        Path | None,
        option(
            "FILE", "File to write, with a row for each item: .csv, .jsonl or .parquet.", "--output", "-o"
        ),
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Plan further labels: which items gain most, whom to ask, when to stop, how to lay out a new study."""
    from dissensus.annotators.plan import design_study, plan_labels
    from dissensus.labels.display import make_frame
    from dissensus.tables.layouts import with_side_tables
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.write import write_table
    from dissensus.workflow.runs import is_run, posterior_of

    model, labels = posterior_of(place, reading.read, seed=seed, n_jobs=jobs)
    if is_run(place):
        labels = with_side_tables(labels, None, reading.annotators, None, ("item", "annotator"), False)
    found = plan_labels(
        labels,
        model,
        budget=budget,
        target_interval=target_interval,
        target_alpha_width=target_alpha_width,
        interval=interval,
    )
    designs = design_study(model, budget or max(found.budget, 1), seed=seed)
    if output is not None:
        with for_spreadsheets(safe_csv):
            write_table(make_frame(found.columns(), "pyarrow"), output)
    if as_json:
        show_json(found.to_dict() | {"designs": [vars(design) for design in designs]})
        return
    _show(found, interval)
    if designs and (budget or found.budget):
        title = f"A new study of such items with {count(budget or found.budget, 'label')}"
        rows = [[one.n_items, one.labels_each, one.loss, one.alpha_width] for one in designs]
        show_table(title, ["items", "labels each", "expected KL", "width of α's interval"], rows)
    if output is not None:
        say(f"Wrote {output}: {count(len(found.item), 'item')}")


def _show(found: LabelPlan, interval: float) -> None:
    if found.target is not None:
        reached = (found.width <= found.target).mean()
        say(f"{'Enough: ' * found.stop}{reached:.0%} of the items are as sure as asked for")
    asked = int((found.n_more > 0).sum())
    if asked:
        say(
            f"{count(found.budget, 'label')} for {count(asked, 'item')}: expected KL from the population "
            f"{found.loss.mean():.4f} now, {found.loss_after.mean():.4f} afterwards "
            f"({found.uniform_loss:.4f} if all items got the same); intervals {found.width.mean():.2f} wide "
            f"now, {found.width_after.mean():.2f} afterwards"
        )
    if found.items_for_alpha is not None:
        alpha, low, high = found.alpha
        needed = count(found.items_for_alpha, "item")
        say(
            f"α is {alpha:.3f} ({interval:.0%} interval {low:.3f} to {high:.3f}); the width asked for takes "
            f"{needed}, and there are {len(found.item):,}"
        )
    if found.n_by_all:
        items = count(found.n_by_all, "item")
        note(f"everybody who may be asked has labelled {items} already: more labels take new people")
    if len(found.ask):
        say(f"Whom to ask: {', '.join(map(str, found.ask[:ASKED]))}{', …' * (len(found.ask) > ASKED)}")
    order = [m for m in (-found.gain * (found.n_more > 0)).argsort(kind="stable")[:SHOWN] if found.n_more[m]]
    rows = [
        [str(found.item[m]), int(found.n_labels[m]), int(found.n_more[m]), found.gain[m], found.width[m]]
        for m in order
    ]
    if rows:
        show_table("Items that gain most", ["item", "labels", "more", "gain (nats)", "interval"], rows)


# ---- the next batch -----------------------------------------------------------------------------------


@app.command(
    epilog=example(
        "dissensus queue refined -o to-label.csv",
        "dissensus queue refined --items texts.csv --budget 200 --for label-studio -o tasks.json",
        "dissensus queue votes.csv --each 2 --json",
    )
)
@unbundled
def queue(
    place: LabelsOrRun,
    reading: Reading,
    file: LabelsOfRun = None,
    output: Annotated[
        Path | None,
        option(
            "FILE",
            "File to write: a table (.csv, .jsonl, .parquet), or the tasks of --for.",
            "--output",
            "-o",
        ),
    ] = None,
    budget: Annotated[int | None, option("N", "Number of labels that can be paid for, in all.")] = None,
    each: Annotated[int | None, option("N", "Number of annotators for each item that needs labels.")] = None,
    tool: Annotated[
        Literal["table", "label-studio", "argilla", "prodigy"],
        option("TOOL", "Write tasks for label-studio, argilla or prodigy instead of a table.", "--for"),
    ] = "table",
    control: Annotated[
        str | None, option("NAME", "Name of the question in that tool (if left out: label).")
    ] = None,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Print the next batch: items that need a label or somebody who decides, each with the reason."""
    from dissensus.annotators.findings import label_queue
    from dissensus.tables.results import for_spreadsheets
    from dissensus.workflow.runs import opened

    tables = (reading.items, reading.annotators, reading.gold)
    saved, annotations = opened(place, file, reading.as_in(place).read, tables)
    found = label_queue(annotations, saved.model, budget=budget, each=each)
    if output is not None:
        with for_spreadsheets(safe_csv):
            _write(found, annotations, output, tool, control or reading.question, reading.item_text)
    if as_json:
        show_json(found.columns())
        return
    decide = int((found.action == "adjudicate").sum())
    labels = int(found.n_more.sum()) - decide
    rest = count(len(found) - decide, "item")
    say(f"{count(decide, 'item')} to adjudicate, {count(labels, 'label')} for {rest}")
    if found.n_by_all:
        items = count(found.n_by_all, "item")
        note(f"{items} more need labels of new people: everybody who may be asked has labelled them")
    rows = [
        [str(found.item[q]), str(found.action[q]), int(found.n_more[q]), str(found.reason[q])]
        for q in range(min(SHOWN, len(found)))
    ]
    if rows:
        show_table("The next items", ["item", "action", "labels", "reason"], rows)
    if output is not None:
        say(f"Wrote {output}: {count(len(found), 'item')}")


def _write(
    found: Any, annotations: Any, output: Path, tool: str, control: str | None, text_column: str | None
) -> None:
    from dissensus.labels.display import make_frame
    from dissensus.report.items import texts_of
    from dissensus.tables.write import write_table, write_tasks

    texts = texts_of(annotations, text_column)
    columns = found.columns() | ({} if texts is None else {"text": [texts[m] for m in found.code]})
    if tool == "table":
        write_table(make_frame(columns, "pyarrow"), output)
        return
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    plain = [{"text": None, **row, "item": str(row["item"]), "label": str(row["label"])} for row in rows]
    classes = [str(name) for name in annotations.classes]
    write_tasks(plain, output, tool, classes, question=control or "label")

"""``dissensus plan``: how many more labels, of which items, by whom, and when to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, LabelsOrRun, Reading, SafeCsv, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, Seed
from dissensus.cli.terminal import count, note, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.annotators.plan import Design, LabelPlan

SHOWN, ASKED = 10, 8  # items and annotators named


@app.command(
    epilog=example("dissensus plan votes.csv --budget 500", "dissensus plan refined --target-interval 0.2")
)
@unbundled
def plan(
    place: LabelsOrRun,
    reading: Reading,
    budget: Annotated[
        int | None, typer.Option("--budget", metavar="N", help="Number of labels that can be paid for.")
    ] = None,
    target_interval: Annotated[
        float | None,
        typer.Option(
            "--target-interval",
            metavar="WIDTH",
            help="Wanted width of the interval of each item's most probable class.",
        ),
    ] = None,
    target_alpha_width: Annotated[
        float | None,
        typer.Option("--target-alpha-width", metavar="WIDTH", help="Wanted width of the interval of α."),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SHARE", help="Size of the intervals, such as 0.9.")
    ] = 0.9,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write, with a row for each item: .csv, .jsonl or .parquet.",
        ),
    ] = None,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Plan further labels: which items gain most, whom to ask, when to stop, how to lay out a new study."""
    from dissensus.annotators.plan import design_study, plan_labels
    from dissensus.models.frames import make_frame
    from dissensus.tables.layouts import with_side_tables
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.write import write_table
    from dissensus.workflow.runs import is_run, posterior_of

    model, labels = posterior_of(place, reading.read, seed=seed, n_jobs=jobs)
    if is_run(place):
        labels = with_side_tables(labels, None, reading.annotators, None, ("item", "annotator"), False)
    found = plan_labels(
        model,
        labels,
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
    if budget or found.budget:
        _show_designs(designs, budget or found.budget)
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


def _show_designs(designs: list[Design], budget: int) -> None:
    rows = [[one.n_items, one.labels_each, one.loss, one.alpha_width] for one in designs]
    if rows:
        title = f"A new study of such items with {count(budget, 'label')}"
        show_table(title, ["items", "labels each", "expected KL", "width of α's interval"], rows)

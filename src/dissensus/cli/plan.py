"""``dissensus plan``: the next batch, and what further labels would settle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import app, examples, option
from dissensus.cli.terminal import count, note, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.annotators.plan import LabelPlan

SHOWN, ASKED = 10, 8  # items and annotators named


@app.command(
    epilog=examples(
        "dissensus plan refined --budget 500 -o to-label.csv",
        "dissensus plan refined --items texts.csv --for label-studio -o tasks.json",
    )
)
def plan(
    place: opt.LabelsOrRun,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    budget: Annotated[int | None, option("N", "Labels that can be paid for, in all.")] = None,
    each: Annotated[int | None, option("N", "Annotators for each item that needs labels.")] = None,
    target_interval: Annotated[float | None, option("WIDTH", "Wanted width of the items' intervals.")] = None,
    target_alpha_width: Annotated[float | None, option("WIDTH", "Wanted width of the interval of α.")] = None,
    output: Annotated[Path | None, option("FILE", "The batch: a table, or tasks.", "--output", "-o")] = None,
    tool: Annotated[str, option("TOOL", "Tasks for label-studio, argilla or prodigy.", "--for")] = "table",
    question: Annotated[str, option("NAME", "Name of the question in that tool.")] = "label",
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    safe_csv: opt.SafeCsv = False,
    as_json: opt.Json = False,
) -> None:
    """Print the next items to label or decide, and why."""
    from dissensus.annotators.findings import label_queue
    from dissensus.annotators.plan import plan_labels
    from dissensus.models.hpgm.model import HPGM
    from dissensus.workflow.runs import open_run

    read = opt.Columns(item_column, annotator_column, label_column, label_type, classes).read
    targets = {"target_interval": target_interval, "target_alpha_width": target_alpha_width}
    asked: dict[str, Any] = {
        name: value for name, value in {"budget": budget, **targets}.items() if value is not None
    }
    tables = {"items": items, "annotators": annotators}
    run = open_run(place, read, **tables, draws=bool(asked), seed=seed, n_jobs=jobs)
    planned = plan_labels(run.labels, run.model, **asked) if asked and isinstance(run.model, HPGM) else None
    wanted = budget or (planned.budget if planned is not None and target_interval is not None else None)
    batch = label_queue(run.labels, run.model, budget=wanted or None, each=each)
    if output is not None:
        _write(batch, run.labels, output, tool, question, safe_csv)
    if as_json:
        more = {} if planned is None else {"plan": planned.to_dict()}
        show_json({"batch": batch.columns(), **more})
        return
    if planned is not None:
        _show_plan(planned)
    decide = int((batch.action == "adjudicate").sum())
    labels, rest = int(batch.n_more.sum()) - decide, count(len(batch) - decide, "item")
    say(f"{count(decide, 'item')} to adjudicate, {count(labels, 'label')} for {rest}")
    rows = [
        [str(batch.item[q]), str(batch.action[q]), int(batch.n_more[q]), str(batch.reason[q])]
        for q in range(min(SHOWN, len(batch)))
    ]
    if rows:
        title = f"The next {len(rows)} of {count(len(batch), 'item')}"
        show_table(title, ["item", "action", "labels", "reason"], rows)
    if batch.n_by_all:
        note(f"{count(batch.n_by_all, 'item')} more need labels of new people: all others have labelled them")
    if output is not None:
        say(f"Wrote {output}: {count(len(batch), 'item')}")


def _show_plan(planned: LabelPlan) -> None:
    if planned.target is not None:
        reached = (planned.width <= planned.target).mean()
        say(f"{'Enough: ' * planned.stop}{reached:.0%} of the items are as sure as asked for")
    asked = int((planned.n_more > 0).sum())
    if asked:
        loss = f"{planned.loss.mean():.4f} now, {planned.loss_after.mean():.4f} afterwards"
        even, now, then = planned.uniform_loss, planned.width.mean(), planned.width_after.mean()
        say(f"{count(planned.budget, 'label')} for {count(asked, 'item')}: expected KL {loss}")
        say(f"({even:.4f} if all items got the same); intervals {now:.2f} wide now, {then:.2f} afterwards")
    if planned.items_for_alpha is not None:
        alpha, low, high = planned.alpha
        needed, there = count(planned.items_for_alpha, "item"), len(planned.item)
        say(f"α is {alpha:.3f} ({low:.3f} to {high:.3f}); the width asked for takes {needed} of {there:,}")
    if len(planned.ask):
        say(f"Whom to ask: {', '.join(map(str, planned.ask[:ASKED]))}{', …' * (len(planned.ask) > ASKED)}")


def _write(batch: Any, labels: Any, output: Path, tool: str, question: str, safe_csv: bool) -> None:
    from dissensus.report.items import texts_of
    from dissensus.tables.write import write_tasks

    texts = texts_of(labels, None)
    columns = batch.columns() | ({} if texts is None else {"text": [texts[m] for m in batch.code]})
    if tool == "table":
        opt.write_columns(columns, output, safe_csv)
        return
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    plain = [{"text": None, **row, "item": str(row["item"]), "label": str(row["label"])} for row in rows]
    write_tasks(plain, output, tool, [str(name) for name in labels.classes], question=question)

"""``dissensus describe``, ``annotators``, ``plan`` and ``report``: commands on labels or a finished run."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import argument, last_result, option
from dissensus.cli.terminal import count, note, say, say_report, show_json, show_table
from dissensus.errors import warn

if TYPE_CHECKING:
    from dissensus.annotators.plan import LabelPlan

ANNOTATORS_PER_VERDICT = 10  # in the table of annotators
QUEUE_ROWS, ANNOTATORS_TO_ASK = 10, 8  # items and annotators that ``plan`` prints
VERDICT_ORDER = ("spam", "systematic error", "differs", "minority view", "cannot tell", "typical")


@opt.command(
    "dissensus describe votes.csv",
    "dissensus describe ratings.tsv --label-column grade --classes 'low<mid<high'",
    "dissensus describe votes.csv --agreement ac1,alpha",
)
def describe(
    path: opt.LabelsOrRun,
    columns: opt.Columns,
    agreement: Annotated[str, option("NAMES", "Coefficients, such as ac1,alpha; or all.")] = "",
    as_json: opt.Json = False,
) -> None:
    """Summarise labels: counts, classes and agreement."""
    from dissensus.labels import coefficients, description
    from dissensus.workflow.runs import open_labels

    labels, names = open_labels(path, columns.read), agreement.replace(" ", "").split(",")
    rows = coefficients.agreement(labels, names).rows() if agreement else []
    summary = description.describe(labels)
    for remark in summary.notes:
        warn(remark)
    if as_json:
        show_json(summary.to_dict() | ({"coefficients": rows} if rows else {}))
        return
    say(*(line for line in summary.as_text().splitlines() if not line.startswith("note: ")))
    if rows:
        cells = [list(row.values()) for row in rows]
        show_table("Agreement, with 95 % intervals over items", list(rows[0]), cells)


# ---- annotators ---------------------------------------------------------------------------------------


@opt.command("dissensus annotators votes.csv", "dissensus annotators refined -o who.csv")
def annotators(
    path: opt.LabelsOrRun,
    columns: opt.Columns,
    output: opt.OutputTable = None,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    safe_csv: opt.SafeCsv = False,
    as_json: opt.Json = False,
) -> None:
    """Say whom to talk to first, and find groups, spam and systematic errors."""
    from dissensus.workflow.runs import annotators_of

    table, words = annotators_of(path, columns.read, seed=seed, n_jobs=jobs)
    if output is not None:
        opt.write_columns(table, output, safe_csv)
    if as_json:
        show_json(table)
        return
    if "verdict" in table:
        _show_verdicts(table, words)
    else:  # numeric ratings have no verdicts
        rows = list(zip(*table.values(), strict=True))[: 2 * ANNOTATORS_PER_VERDICT]
        show_table("Annotators", list(table), rows)
    if output is not None:
        say(f"Wrote {output}: {count(len(table['annotator']), 'annotator')}")


def _show_verdicts(table: dict[str, Any], words: str) -> None:
    """Print whom to talk to first, the groups, and a table of annotators of each verdict."""
    from dissensus.annotators.verdicts import VERDICTS

    verdicts = list(map(str, table["verdict"]))
    say(words)
    say("; ".join(f"{verdicts.count(verdict):,} {verdict}" for verdict in VERDICTS if verdict in verdicts))
    # those who agree least, compared with others on the same items, first
    gaps = [float("inf") if gap != gap else gap for gap in table["gap"]]
    order = sorted(range(len(verdicts)), key=lambda n: (not table["differs"][n], gaps[n]))
    rows = []
    for verdict in VERDICT_ORDER:
        for n in [n for n in order if verdicts[n] == verdict][:ANNOTATORS_PER_VERDICT]:
            shares = (table[name][n] for name in ("probability", "agreement", "usual"))
            chance, agreement, usual = ("–" if share != share else f"{share:.0%}" for share in shares)
            bias = format_bias(table["bias_of"][n], table["bias"][n], table["bias_error"][n])
            differs = ", differs" * int(table["differs"][n] and verdict != "differs")
            cells = [str(table["annotator"][n]), verdict + differs, chance, int(table["n_labels"][n])]
            rows.append([*cells, agreement, usual, bias, str(table["evidence"][n])])
    others = f"; {len(verdicts) - len(rows):,} not shown: -o FILE writes all" * (len(verdicts) > len(rows))
    title = f"Annotators (up to {ANNOTATORS_PER_VERDICT} per verdict, least agreement first{others})"
    names = ["annotator", "verdict", "probability", "labels", "agreement", "others", "bias", "evidence"]
    show_table(title, names, rows)
    say("Agreement: with another annotator of the item; others: of two others on the same items")
    say("Bias: difference from other annotators on the same items, with its 95 % margin")


def format_bias(class_name: str, bias: float, error: float) -> str:
    """Format a bias and its 95 % margin: percentage points of a class, or grades if there is no class."""
    if bias != bias:
        return "–"
    if not class_name:
        return f"{bias:+.2f}" + ("" if error != error else f" ± {error:.2f}")
    return f"{class_name} {100 * bias:+.0f}" + ("" if error != error else f" ± {100 * error:.0f}") + " points"


# ---- plan ---------------------------------------------------------------------------------------------


@opt.command(
    "dissensus plan refined --budget 500 -o to-label.csv",
    "dissensus plan refined --items texts.csv --for label-studio -o tasks.json",
)
def plan(
    path: opt.LabelsOrRun,
    columns: opt.Columns,
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    budget: Annotated[int | None, option("N", "Total number of labels to collect.")] = None,
    each: Annotated[int | None, option("N", "Number of new labels for each item, within the budget.")] = None,
    target_interval: Annotated[float | None, option("WIDTH", "Target width of the 90 % intervals.")] = None,
    target_alpha_width: Annotated[float | None, option("WIDTH", "Target width of the interval of α.")] = None,
    output: Annotated[Path | None, option("FILE", "File for the next batch.", "--output", "-o")] = None,
    tool: Annotated[str, option("TOOL", "table, label-studio, argilla or prodigy.", "--for")] = "table",
    question: Annotated[str, option("NAME", "Name of the question in that tool.")] = "label",
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    safe_csv: opt.SafeCsv = False,
    as_json: opt.Json = False,
) -> None:
    """List the items to label or adjudicate next, and why."""
    from dissensus.annotators.plan import label_queue, plan_labels
    from dissensus.models.hpgm.model import HPGM
    from dissensus.workflow.runs import open_run

    targets = {"target_interval": target_interval, "target_alpha_width": target_alpha_width}
    goals: dict[str, Any] = {"budget": budget, **targets}
    goals = {name: value for name, value in goals.items() if value is not None}
    tables = {"items": items, "annotators": annotators}
    run = open_run(path, columns.read, **tables, draws=bool(goals), seed=seed, n_jobs=jobs)
    planned = plan_labels(run.labels, run.model, **goals) if goals and isinstance(run.model, HPGM) else None
    n_labels = budget or (planned.budget if planned is not None and target_interval is not None else None)
    batch = label_queue(run.labels, run.model, budget=n_labels or None, each=each)
    if output is not None:
        _write_batch(batch, run.labels, output, tool, question, safe_csv)
    if as_json:
        show_json({"batch": batch.columns()} | ({} if planned is None else {"plan": planned.to_dict()}))
        return
    if planned is not None:
        _show_plan(planned)
    n_adjudicate = int((batch.action == "adjudicate").sum())
    labels, others = int(batch.n_more.sum()) - n_adjudicate, count(len(batch) - n_adjudicate, "item")
    say(f"{count(n_adjudicate, 'item')} to adjudicate; {count(labels, 'label')} to collect for {others}")
    cells = map(str, batch.item), batch.action, batch.n_more.tolist(), batch.reason
    rows = list(zip(*cells, strict=True))[:QUEUE_ROWS]
    if rows:
        title = f"First {len(rows)} of {count(len(batch), 'item')}"
        show_table(title, ["item", "action", "labels to add", "reason"], rows)
    if batch.n_by_all:
        more_items = f"{count(batch.n_by_all, 'more item')} need{'s' * (batch.n_by_all == 1)}"
        note(f"{more_items} labels by new annotators: all reliable ones have labelled them")
    if output is not None:
        say(f"Wrote {output}: {count(len(batch), 'item')}")


def _show_plan(planned: LabelPlan) -> None:
    """Print how close the targets are, what the labels of the plan gain, and which annotators to ask."""
    if planned.target is not None:
        share = (planned.width <= planned.target).mean()
        say(f"{share:.0%} of the items have reached the target interval{', which is enough' * planned.stop}")
        if planned.n_out_of_reach:
            items = count(planned.n_out_of_reach, "item")
            say(f"{items} cannot reach it: fewer annotators are left to ask than labels needed")
    if planned.budget:
        loss = f"{planned.loss.mean():.4f} now, {planned.loss_after.mean():.4f} afterwards"
        even, now, then = planned.uniform_loss, planned.width.mean(), planned.width_after.mean()
        # a target of the width is not one of the KL
        spread = f" ({even:.4f} if spread evenly over all items)" if planned.target is None else ""
        say(f"With {count(planned.budget, 'more label')}, expected KL: {loss}{spread}")
        say(f"Mean width of the intervals: {now:.2f} now, {then:.2f} afterwards")
    if planned.items_for_alpha is not None:
        alpha, low, high = planned.alpha
        needed, there = count(planned.items_for_alpha, "item"), len(planned.item)
        say(f"α is {alpha:.3f} ({low:.3f} to {high:.3f}); the target width needs {needed} (now {there:,})")
    if len(planned.ask):
        more = ", …" * (len(planned.ask) > ANNOTATORS_TO_ASK)
        say(f"Annotators to ask: {', '.join(map(str, planned.ask[:ANNOTATORS_TO_ASK]))}{more}")


def _write_batch(batch: Any, labels: Any, output: Path, tool: str, question: str, safe_csv: bool) -> None:
    """Write the batch as a table, or as tasks of a labelling tool."""
    from dissensus.labels.features import texts_of
    from dissensus.tables.write import write_tasks

    texts = texts_of(labels)
    columns = batch.columns() | ({} if texts is None else {"text": [texts[m] for m in batch.code]})
    if tool == "table":
        opt.write_columns(columns, output, safe_csv)
        return
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    tasks = [{"text": None, **row, "item": str(row["item"]), "label": str(row["label"])} for row in rows]
    write_tasks(tasks, output, tool, [str(name) for name in labels.classes], question=question)


# ---- report -------------------------------------------------------------------------------------------


@opt.command(
    "dissensus report refined", "dissensus report refined --items tweets.csv --anonymise -o pilot.html"
)
def report(
    path: opt.LabelsOrRun,
    columns: opt.Columns,
    file: Annotated[Path | None, argument("LABELS", "Labels of the run, if it did not keep them.")] = None,
    items: opt.ItemTable = None,
    output: Annotated[Path | None, option("FILE", "HTML file to write.", "--output", "-o")] = None,
    title: opt.Title = None,
    anonymise: opt.Anonymise = False,
    since: Annotated[Path | None, option("RUN", "Earlier run; the report shows what has changed.")] = None,
) -> None:
    """Write the HTML report of a finished run or of a file of labels."""
    from dissensus.report.page import write_report
    from dissensus.tables.results import replacing_file
    from dissensus.workflow.runs import REPORT, open_run

    saved = open_run(path, columns.read, file, items=items)
    target = output or (path / REPORT if path.is_dir() and saved.summary else Path(REPORT))
    in_run = path.is_dir() and target.resolve() == (path / REPORT).resolve()
    settings = saved.evidence() | {"title": title or opt.page_title(file or path), "since": since}
    settings |= {"anonymise": anonymise, "run": str(path) if path.is_dir() else ""}
    with last_result(), replacing_file(path, REPORT) if in_run else nullcontext(target) as page:
        write_report(saved.labels, saved.model, page, **settings)
    say_report(target)

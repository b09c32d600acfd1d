"""``dissensus judges``: compare language models with human annotators."""

from __future__ import annotations

from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import option
from dissensus.cli.inspection import format_bias
from dissensus.cli.terminal import count, note, say, show_json, show_table
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.judges.report import JudgeReport

ERRORS_PER_JUDGE = 3  # rows of the table of errors
RATES_SHOWN = 40  # rows of the table of rates


@opt.command(
    "dissensus judges votes.csv --judges 'gpt*' --epsilon 0.2 -o judges.csv",
    "dissensus judges log.eval --humans labels.csv",
    "dissensus judges votes.csv --judges kind=llm --annotators who.csv --items texts.csv --by topic",
)
def judges(
    path: opt.LabelsOrRun,
    columns: opt.Columns,
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    judges: Annotated[
        list[str], option("WHO", "Ids, a pattern ('gpt*'), or COLUMN=VALUE of --annotators.")
    ] = [],
    humans: Annotated[
        Path | None, option("FILE", "Labels of humans, joined by item id; the other file has judges only.")
    ] = None,
    epsilon: Annotated[float, option("E", "Tolerance in favour of a judge, usually 0.1 to 0.2.")] = 0.15,
    by: Annotated[
        str | None, option("COLUMN", "Also estimate class shares for each value of this column of --items.")
    ] = None,
    output: opt.OutputTable = None,
    as_json: opt.Json = False,
) -> None:
    """Compare language models with human annotators.

    Without --judges, the judges are the annotators whose column 'kind' is 'llm' in the table of --annotators.
    If there is no column 'kind', judges are recognised by their names (gpt…, claude…).
    """
    from dissensus.importers.read import read_annotations
    from dissensus.judges.report import judge_report
    from dissensus.tables.results import write_json
    from dissensus.workflow.runs import open_labels

    labels = open_labels(path, columns.read, items=items, annotators=annotators)
    people = humans and read_annotations(humans, classes=columns.classes, label_type=columns.label_type)
    with shown() as progress:
        progress("comparing judges with humans", 0.0)
        names = opt.split_list(judges)
        who = names[0] if len(names) == 1 else names or None
        report = judge_report(labels, who, epsilon, humans=people, by=by)
    if output is not None and output.suffix == ".json":
        write_json(report.to_dict(), output)
    elif output is not None:
        rows = report.rows()
        opt.write_columns({name: [row[name] for row in rows] for name in rows[0]}, output)
    if as_json:
        show_json(report.to_dict())
        return
    _show(report, by)
    note(*report.notes)
    if output is not None:
        say(f"Wrote {output}: {count(len(report.judges), 'judge')}")


def _show(report: JudgeReport, by: str | None) -> None:
    """Print the tests, the panel, the class rates and the clearest errors."""
    title = f"{count(len(report.judges), 'judge')} ({report.found_by}), {count(report.n_humans, 'human')}"
    if not report.n_humans:
        rows = [[row["judge"], row["n_labels"], row["agreement_with_judges"]] for row in report.rows()]
        show_table(title, ["judge", "labels", "agreement with other judges"], rows)
        return
    nominal = report.answers.values is None
    score = "share of humans who agree" if nominal else "minus the root mean squared difference"
    say(title, f"Score: {score} ({report.answers.annotations.label_type} labels)")
    typical = "0.2 with experts, 0.15 with skilled annotators, 0.1 with a crowd"
    say(f"Epsilon: {report.epsilon:g} (typically {typical})")
    _show_test(report)
    if report.panel is not None:
        say(report.panel.in_words(report.judges))
    if by is not None or any(rate.n_items > rate.n_human_items for rate in report.rates):
        _show_rates(report)
    _show_errors(report)


def _show_test(report: JudgeReport) -> None:
    """Print the alternative annotator test of each judge."""
    columns = [
        "judge", "winning rate", "advantage", "passes", "humans tested", "labels needed",
        "pooled: human − judge (95 %)", "passes pooled test", "disagreement with humans",
        "bias (judge − humans)",
    ]  # fmt: skip
    rows = []
    for row in report.rows():
        needed = row["labels_needed"]  # NaN if no human has enough items
        more = "–" if needed != needed else "cannot pass" if needed == float("inf") else f"{needed:,.0f}"
        tested = f"{row['n_humans']} of {row['n_humans'] + row['n_humans_left_out']}"
        pooled = f"{row['pooled_difference']:+.3f} ({row['pooled_low']:+.3f} – {row['pooled_high']:+.3f})"
        apart = f"{row['disagreement']:.3f} (humans {row['human_disagreement']:.3f})"
        bias = format_bias(row["bias_of"], row["bias"], row["bias_error"])
        rates = [f"{row[name]:.2f}" for name in ("winning_rate", "advantage")]
        tests = [row["pooled_passed"], apart, bias]
        rows.append([row["judge"], *rates, row["passed"], tested, more, pooled, *tests])
    title = "May a judge replace a human? (alternative annotator test, and a pooled version)"
    show_table(title, columns, rows)


def _show_rates(report: JudgeReport) -> None:
    """Print the share of each class that humans would give, estimated with the judge's labels."""

    def interval(estimate: Any) -> str:
        value, low, high = estimate.value, estimate.low, estimate.high
        return "–" if value != value else f"{value:.3f} ({low:.3f} – {high:.3f})"

    rows = []
    for rate in report.rates[:RATES_SHOWN]:
        estimates = map(interval, (rate.ppi, rate.rogan_gladen, rate.humans_alone))
        sizes = [rate.n_human_items, rate.n_items]
        rows.append([rate.judge, rate.group or "all", rate.class_name, *sizes, *estimates, rate.ppi.refused])
    columns = ["judge", "items", "class", "human items", "judge items"]
    columns += ["PPI++", "Rogan–Gladen", "humans only", ""]
    title = f"Class shares that humans would give (95 % intervals), {len(rows)} of {len(report.rates):,} rows"
    show_table(title, columns, rows)


def _show_errors(report: JudgeReport) -> None:
    """Print the items on which each judge is most clearly wrong."""
    names = ("judge", "item", "answer", "human_answer", "share_as_judge", "n_human_labels")
    rows: list[list[Any]] = []
    for _, errors in groupby(report.wrong_items(), key=itemgetter("judge")):
        rows += [[row[name] for name in names] for row in islice(errors, ERRORS_PER_JUDGE)]
    columns = ["judge", "item", "judge says", "humans say", "humans who agree (estimated)", "human labels"]
    if rows:
        show_table(f"Clearest errors, up to {ERRORS_PER_JUDGE} per judge", columns, rows)

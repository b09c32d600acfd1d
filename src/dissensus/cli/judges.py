"""``dissensus judges``: language models beside humans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dissensus.cli import options as opt
from dissensus.cli.app import app, examples, option
from dissensus.cli.look import bias_words
from dissensus.cli.terminal import count, note, say, show_json, show_table
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.judges.report import JudgeReport

WRONG_SHOWN = 3  # items of each judge on the screen
RATES_SHOWN = 40


@app.command(
    epilog=examples(
        "dissensus judges votes.csv --judges 'gpt*' --epsilon 0.2 -o judges.csv",
        "dissensus judges votes.csv --judges kind=llm --annotators who.csv --items texts.csv --by topic",
    )
)
def judges(
    place: opt.LabelsOrRun,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    annotators: opt.AnnotatorTable = None,
    judges: Annotated[list[str], option("WHO", "Judges: ids, a pattern, a column, or COLUMN=VALUE.")] = [],
    epsilon: Annotated[float, option("E", "Advantage granted to a judge: 0.1 to 0.2 (0.15).")] = 0.15,
    by: Annotated[str | None, option("COLUMN", "Rates for each value of this column of --items too.")] = None,
    output: opt.OutputTable = None,
    as_json: opt.Json = False,
) -> None:
    """Compare language models with humans."""
    from dissensus.judges.report import judge_report
    from dissensus.tables.results import write_json
    from dissensus.workflow.runs import open_labels

    read = opt.Columns(item_column, annotator_column, label_column, label_type, classes).read
    labels = open_labels(place, read, items=items, annotators=annotators)
    with shown() as progress:
        progress("comparing judges with humans", 0.0)
        who = opt.in_list(judges)
        found = judge_report(labels, who[0] if len(who) == 1 else who or None, epsilon, by=by)
    if output is not None and output.suffix == ".json":
        write_json(found.to_dict(), output)
    elif output is not None:
        judged = found.rows()
        opt.write_columns({name: [row[name] for row in judged] for name in judged[0]}, output)
    if as_json:
        show_json(found.to_dict())
        return
    _show(found, by)
    for remark in found.notes:
        note(remark)
    if output is not None:
        say(f"Wrote {output}: {count(len(found.judges), 'judge')}")


def _show(found: JudgeReport, by: str | None) -> None:
    who = f"{count(len(found.judges), 'judge')} ({found.found_by}), {count(found.n_humans, 'human')}"
    if not found.n_humans:
        rows = [[row["judge"], row["n_labels"], row["agreement_with_judges"]] for row in found.rows()]
        show_table(who, ["judge", "labels", "agrees with other judges"], rows)
        return
    nominal = found.answers.values is None
    score = "share of agreeing humans" if nominal else "minus the root mean squared difference"
    say(
        who,
        f"Score: {score} ({found.answers.annotations.label_type}); epsilon = {found.epsilon:g} "
        "(0.2 beside experts, 0.15 skilled annotators, 0.1 a crowd)",
    )
    _show_test(found)
    if found.panel is not None:
        say(found.panel.in_words(found.judges))
    if by is not None or any(rate.n_items > rate.n_human_items for rate in found.rates):
        _show_rates(found)
    _show_wrong(found)


def _show_test(found: JudgeReport) -> None:
    columns = [
        "judge", "winning rate", "advantage", "may replace", "humans tested", "more labels",
        "pooled: human − judge (95 %)", "may by the pooled test", "humans disagree with it",
        "bias (judge − humans)",
    ]  # fmt: skip
    rows = []
    for row in found.rows():
        needed = row["labels_needed"]  # not a number where no human had enough items
        more = "–" if needed != needed else "no help" if needed == float("inf") else f"{needed:,.0f}"
        tested = f"{row['n_humans']} of {row['n_humans'] + row['n_humans_left_out']}"
        pooled = f"{row['pooled_difference']:+.3f} ({row['pooled_low']:+.3f} – {row['pooled_high']:+.3f})"
        apart = f"{row['disagreement']:.3f}, humans {row['human_disagreement']:.3f}"
        bias = bias_words(row["bias_of"], row["bias"], row["bias_error"])
        rates = [f"{row[name]:.2f}" for name in ("winning_rate", "advantage")]
        tests = [row["pooled_passed"], apart, bias]
        rows.append([row["judge"], *rates, row["passed"], tested, more, pooled, *tests])
    show_table("May it replace a human? (alternative annotator test; the pooled one is ours)", columns, rows)


def _show_rates(found: JudgeReport) -> None:
    rows = []
    for rate in found.rates[:RATES_SHOWN]:
        known = [rate.judge, rate.group or "all", rate.class_name, rate.n_human_items, rate.n_items]
        estimates = [
            "–" if one.value != one.value else f"{one.value:.3f} ({one.low:.3f} – {one.high:.3f})"
            for one in (rate.ppi, rate.rogan_gladen, rate.humans_alone)
        ]
        rows.append([*known, *estimates, rate.ppi.refused])
    columns = [
        "judge",
        "items",
        "class",
        "by humans",
        "by judge",
        "PPI++",
        "Rogan–Gladen",
        "humans alone",
        "",
    ]
    title = f"Share of each class among humans over all items (95 %), {len(rows)} of {len(found.rates):,}"
    show_table(title, columns, rows)


def _show_wrong(found: JudgeReport) -> None:
    shown_of: dict[str, int] = {}
    rows = []
    for row in found.wrong_items():
        shown_of[row["judge"]] = shown_of.get(row["judge"], 0) + 1
        if shown_of[row["judge"]] <= WRONG_SHOWN:
            names = ("judge", "item", "answer", "human_answer", "share_as_judge", "n_human_labels")
            rows.append([row[name] for name in names])
    columns = ["judge", "item", "it says", "humans say", "humans who say so too", "human labels"]
    if rows:
        show_table(f"Most surely wrong, {WRONG_SHOWN} items of each judge", columns, rows)

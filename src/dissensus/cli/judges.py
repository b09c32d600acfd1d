"""``dissensus judges``: compare language models with human annotators."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import UnmetError, option, shell_spelling
from dissensus.cli.terminal import count, note, say, show_json, show_table
from dissensus.errors import ParameterError, spelled
from dissensus.progress import shown

if TYPE_CHECKING:
    from dissensus.judges.report import JudgeReport

ERRORS_PER_JUDGE = 3  # rows of the table of errors
RATES_SHOWN = 40  # rows of the table of rates
TEST_COLUMNS = (
    "judge", "winning_rate", "advantage", "n_humans", "n_humans_left_out", "pooled_difference", "pooled_low",
    "pooled_high", "agreement", "human_agreement", "settled_by",
)  # fmt: skip
RATE_COLUMNS = (
    "judge", "group", "class", "n_human_items", "n_items", "judge_share",
    "ppi", "ppi_low", "ppi_high", "refused",
)  # fmt: skip
ERROR_COLUMNS = ("judge", "item", "answer", "human_answer", "share_as_judge", "n_human_labels")


@opt.command(
    "dissensus judges votes.csv --judges 'gpt*' --epsilon 0.2 -o judges.html",
    "dissensus judges votes.csv --since last-week.json --require 'kappa>=0.6' --require stable",
    "dissensus judges log.eval --humans labels.csv",
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
    since: Annotated[Path | None, option("FILE", "Earlier output (.json): name judges that drifted.")] = None,
    require: Annotated[list[str], option("RULE", "'kappa>=0.6', replaces or stable; repeatable.")] = [],
    output: Annotated[Path | None, option("FILE", "A .html page, .json or table.", "--output", "-o")] = None,
    as_json: opt.Json = False,
    verbose: Annotated[bool, option(None, "Also print tests, biases and errors.", "--verbose")] = False,
) -> None:
    """Compare language models with human annotators.

    Without --judges, the judges are the annotators whose column 'kind' is 'llm' in the table of --annotators.
    If there is no column 'kind', judges are recognised by their names (gpt…, claude…).
    """
    from dissensus.importers.read import read_annotations
    from dissensus.judges.report import judge_report
    from dissensus.tables.results import write_json
    from dissensus.workflow.runs import open_labels

    rules = [parse_rule(text, since) for text in require]
    labels = open_labels(path, columns.read, items=items, annotators=annotators)
    people = None
    if humans is not None:
        with spelled(shell_spelling(None, ["judges", str(humans)])):
            people = read_annotations(humans, classes=columns.classes, label_type=columns.label_type)
    with shown() as progress:
        progress("comparing judges with humans", 0.0)
        who = opt.split_list(judges)
        which = who[0] if len(who) == 1 else who or None
        report = judge_report(labels, which, epsilon, humans=people, by=by, since=since)
    unmet = [line for rule in rules for line in unmet_lines(report, *rule)]
    if output is not None and output.suffix == ".html":
        from dissensus.report.page import write_judge_page

        write_judge_page(report, output, opt.page_title(path), opt.command_line())
    elif output is not None and output.suffix == ".json":
        write_json(report.to_dict(), output)
    elif output is not None:
        rows = report.rows()
        opt.write_columns({name: [row[name] for row in rows] for name in rows[0]}, output)
    if as_json:
        show_json(report.to_dict())
    else:
        _show(report, by, verbose)
        note(*report.notes)
        if output is not None:
            say(f"Wrote {output}: {count(len(report.judges), 'judge')}")
    if unmet:
        raise UnmetError("; ".join(unmet))


def parse_rule(text: str, since: Path | None) -> tuple[str, str, float]:
    """Parse a requirement: a word, or a figure with a sign and a bound."""
    number = r"(kappa|tpr|tnr|agreement)\s*(>=?)\s*(-?\d*\.?\d+)"
    rule = re.fullmatch(rf"\s*(?:(replaces|stable)|{number})\s*", text)
    if rule is None:
        figures = "kappa, tpr, tnr or agreement with >= or > and a number, as in 'kappa>=0.6'"
        raise ParameterError(f"--require {text}: write replaces, stable, or {figures}")
    if rule[1] == "stable" and since is None:
        raise ParameterError("--require stable: add --since, the earlier output to compare with")
    name, sign, bound = rule[1] or rule[2], rule[3] or "", float(rule[4] or 0)
    if bound > 1 or (bound == 1 and sign == ">"):
        raise ParameterError(f"--require {text}: no judge can meet it; {name} is at most 1")
    return name, sign, bound


def unmet_lines(report: JudgeReport, name: str, sign: str, bound: float) -> Iterator[str]:
    """Yield, for each judge that does not meet a requirement, by how much."""
    if name in ("tpr", "tnr") and not report.positive:
        raise ParameterError(f"--require {name}: the labels do not have two classes")
    if name == "stable":
        from dissensus.judges.drift import STABLE

        yield from (drift.in_words() for drift in report.drifts if drift.verdict != STABLE)
        return
    for row in report.rows():
        value = 0.0 if name == "replaces" else row[name]
        if name == "replaces" and row["verdict"] != name:
            yield f"{row['judge']}: {row['verdict'] or 'no verdict'}, not replaces ({row['settled_by']})"
        elif value != value:
            yield f"{row['judge']}: {name} cannot be computed"
        elif value < bound or (sign == ">" and value == bound):
            short = f"{bound - value:.2g} below" if value < bound else "not above"
            yield f"{row['judge']}: {name} {value:.2f} is {short} {bound:g}"


def _show(report: JudgeReport, by: str | None, verbose: bool) -> None:
    """Print one line per judge, what has drifted and, if ``verbose``, everything else."""
    from dissensus.annotators.sentences import describe_test, quoted, verdict_sentence

    title = f"{count(len(report.judges), 'judge')} ({report.found_by}), {count(report.n_humans, 'human')}"
    rows, lines, rates = report.rows(), list[list[Any]](), ["tpr", "tnr"] if report.positive else []
    if not report.n_humans:
        _show_rows(title, ["judge", "n_labels", "agreement_with_judges"], rows)
        return
    for row in rows:
        kappas = [_figure(row, name) for name in ("kappa", "human_kappa")]
        cells = [row["judge"], row["verdict"] or "–", row["within_epsilon_of"], *kappas]
        cells += [f"{row[name]:.2f} ({row[f'human_{name}']:.2f})".replace(" (nan)", "") for name in rates]
        untested = row["biases_not_tested"]
        lines.append(
            [*cells, (row["biases"] or "none shown") + (f" ({untested} not tested)" if untested else "")]
        )
    kappa = "κ" if report.answers.values is None else "weighted κ"
    columns = ["judge", "verdict", f"within {report.epsilon:g} of", f"{kappa} (95 %)", f"{kappa} of a human"]
    show_table(title, [*columns, *(f"{name.upper()} (of a human)" for name in rates), "bias"], lines)
    terms = "κ: agreement beyond chance (at most 1); κ of a human: with the other humans, the ceiling;"
    say(verdict_sentence(report.epsilon), f"{terms} bias: compared with the humans of the same items")
    if rates:
        say(f"TPR: share of the human answers {quoted(report.positive)} it gives too; TNR: of the others")
    say(*(drift.in_words() for drift in report.drifts))
    if not verbose:
        return
    _show_rows(describe_test(report.epsilon, report.answers.values is None), TEST_COLUMNS, rows)
    say(*(f"{bias.judge}: {bias.in_words()}" for bias in report.biases))
    if report.panel is not None:
        say(report.panel.in_words(report.judges))
    if by is not None or any(rate.n_items > rate.n_human_items for rate in report.rates):
        shares = [rate.as_row() for rate in report.rates[:RATES_SHOWN]]
        shown = f"{len(shares)} of {len(report.rates):,} rows"
        _show_rows(f"Class shares that humans would give (95 % intervals), {shown}", RATE_COLUMNS, shares)
    by_judge = groupby(report.wrong_items(), key=itemgetter("judge"))
    errors = [row for _, group in by_judge for row in islice(group, ERRORS_PER_JUDGE)]
    if errors:
        _show_rows(f"Clearest errors, up to {ERRORS_PER_JUDGE} per judge", ERROR_COLUMNS, errors)


def _figure(row: dict[str, Any], name: str) -> str:
    """Format an estimate of a row with its interval."""
    value, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    return "–" if value != value else f"{value:.2f}" + (f" ({low:.2f} – {high:.2f})" if low == low else "")


def _show_rows(title: str, names: Sequence[str], rows: list[dict[str, Any]]) -> None:
    """Print some columns of rows."""
    cells = [[row[name] for name in names] for row in rows]
    show_table(title, [name.replace("_", " ") for name in names], cells)

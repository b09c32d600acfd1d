"""Everything on one page, and beside it the tables as CSV, the figures, and a list of all cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus._version import __version__
from dissensus.progress import in_words
from dissensus.tables.atomic import atomic_directory
from dissensus.tables.results import write_rows
from reproduction.answers import answers_text, contrasts, misses, tally
from reproduction.as_printed import printed_clusters_table, printed_table
from reproduction.figures import recovery_curve, scatter
from reproduction.findings import Findings
from reproduction.plan import Plan
from reproduction.printed import PAPER_SETS
from reproduction.tables import (
    MEASURES,
    Row,
    chosen_table,
    gold_table,
    hidden_table,
    line,
    recovery_table,
    table,
    table_1,
    table_2,
    table_3,
    times,
)

# ---- what the page says about its tables --------------------------------------------------------------

HEAD = """# The paper's evaluation, run again

Written by `{command}` (dissensus {version}, scale "{scale}"): every figure of ours
is computed by that command, and every row of the CSV files names the files it was computed from. {cells}
cells took {hours} of processor time. How to run it and how to read this page:
[reproduce](../../reproduce.md).

"""

TABLE_1 = """The paper's figures in brackets. Entropy is the mean over items, in nats."""

TABLE_2 = """K and L are chosen among {clusters} (L: {annotators}; FMM's K: {fmm}) by `dissensus.select`:
fitted on the training items, judged by how well half of the labels of each dev item are foreseen when the
other half is folded in. KL(empirical ‖ distribution of the item's most likely cluster) on the training
items, 1e-5 added to both sides, mean of {seeds} seeds; annotators weigh the same, as in the paper's
equation. It describes labels that the fit has seen, so it tends to fall as K grows (not at every step):
whether a model describes the population is told by the labels it has not seen, below."""

TABLE_3 = """Trained on the training items, chosen on the dev items, reported on the test items, from text
alone; 1e-5 added to both sides of the KL. Ours first, with the standard error over repeats, then the paper's
figure; the sign between them says how they compare. PD is a CNN on words taught the raw label distributions.
FMM and PGM are the paper's workflow: training labels snapped to the guide's clusters, the same CNN taught,
its predictions snapped to the most likely cluster (annotator sum outside, S = 1). These are trained {repeats}
times with other seeds around one fitted guide. LDL-NM is the paper's network, its layers' sizes chosen on
dev, its best epoch on dev kept, trained once and evaluated {repeats} times with dropout left on. The columns
below the line are trained {own} times (SoftmaxRegression, in which there is no chance, and FineTunedEncoder,
which is dear, once); an ensemble averages the predictions of these runs. "Soft, on embeddings" are the guides
fairly compared: they refine and project softly, around softmax regression on the sentence embeddings that
LDL-NM sees. With dropout on, LDL-NM averages over a mask for every annotator, and without annotators it has
one mask: the two are compared with dropout off."""

EXCEPTIONS = """Cells of the paper's columns whose mean is above the printed KL or below the printed
accuracy."""

CHOSEN = """Of all columns and ensembles, the one with the lowest KL on dev (a column: the mean of its runs),
and what it reaches on test, with its 95 % bootstrap interval over test items. The line to reach is that of a
MiniLM encoder fine-tuned end to end with no annotator modelled."""

TIMES = """Processor time of a single pass on one core: the search of K and L (or of layer sizes), one
training, one evaluation. The paper's times are those of a desktop with a graphics card, on the slowest of
its datasets."""

AS_PRINTED = """The paper's columns with each departure from it undone, alone and then all together, beside
ours and the figures it prints: KL on test. A departure alone is trained {own} times, all together {repeats}
times; LDL-NM as printed is evaluated {evaluations} times with dropout left on, in the layers' sizes of our
search (the paper does not print its own). {encoder} {glove}"""

PRINTED_CLUSTERS = """The KL of Table 2 at the paper's K × L, mean of {seeds} seeds."""

ANSWERS = """Differences of the first model's loss and the second's on the same test items, hidden labels or
reserved labels, with 95 % bootstrap intervals over items (items and draws, where labels are drawn), the
trained networks taken as they are. Columns of one kind are compared over the training seeds that both have. A
difference whose interval holds zero is a tie. Each interval is of 95 % by itself; nothing is corrected for
the number of comparisons, so of twenty pairs without any difference about one would not be called a tie."""

HIDDEN = """A fifth of the (item, annotator) pairs hidden with all their labels, {splits} splits: −log
P(label) in nats per hidden label (lower is better), with the standard error over splits. K and L are those
of the search."""

RECOVER = """As in [recovery](../../recovery.md): R labels of each item shown, the others kept back, {draws}
draws; KL(labels kept back ‖ estimate). The best of several sizes is taken in hindsight for every model, and
so is the smoothing of the counts. "Worth" is the number of raw labels per item that the counts need for the
same KL. What the default of `dissensus fit` reaches, chosen without hindsight: [default](../default.md)."""

GOLD = """The share of items whose most likely class is the reference label, all labels shown. K and L are
those of the search on dev, which looks at labels and not at gold."""

FIGURES = """The population from few labels: read a model's curve against that of the counts, sideways, for
the number of raw labels it is worth. t-SNE of LDL-NM's item embeddings: a dot is a training item, its colour
the most frequent label."""

FILES = """The cells themselves, one JSON file each with predictions beside it, stay in the directory of the
run under `cells/`; `cells.jsonl` holds the same settings and numbers without the predictions."""


# ---- the page -----------------------------------------------------------------------------------------


@dataclass
class Draft:
    """A page under way: its sections, its rows for the CSV files, and its figures."""

    sections: list[str]
    tables: dict[str, list[Row]]
    figures: dict[str, str]

    def add(self, title: str, *paragraphs: str) -> None:
        """One more section."""
        self.sections.append("\n\n".join([f"## {title}", *filter(None, paragraphs)]))

    def add_table(self, name: str, title: str, story: str, text: str, rows: list[Row]) -> None:
        """A section that is a table, with its rows."""
        self.add(title, story, text)
        self.tables.setdefault(name, []).extend(rows)


def write_page(plan: Plan, directory: Path, command: str) -> list[str]:
    """Write README.md, a CSV file for every table, the figures, and ``cells.jsonl``; gives their names."""
    findings = Findings(plan)
    draft = Draft([], {}, {})
    for fill in (_first_tables, _table_3, _as_printed, _answers, _further, _figures, _files):
        fill(findings, draft)
    text = HEAD.format(command=command, version=__version__, **_amounts(findings)) + "\n\n".join(
        draft.sections
    )
    with atomic_directory(directory) as folder:
        (folder / "README.md").write_text(text + "\n", encoding="utf-8")
        for name, rows in draft.tables.items():
            write_rows(rows, folder / f"{name}.csv")
        for name, figure in draft.figures.items():
            (folder / name).write_text(figure, encoding="utf-8")
        (folder / "cells.jsonl").write_text("".join(_cell_lines(findings)), encoding="utf-8")
        return sorted(file.name for file in folder.iterdir())


def _cell_lines(findings: Findings) -> Iterator[str]:
    """Every cell's settings and numbers, one a line: what stands in its file, the arrays apart."""
    for cell in findings.plan.cells():
        found = findings.measured(cell)
        content = {"file": found.path, "cell": found.identity, "numbers": found.numbers}
        yield json.dumps(content | {"cpu_seconds": found.cpu_seconds}, ensure_ascii=False) + "\n"


def _amounts(findings: Findings) -> dict[str, Any]:
    cells = findings.plan.cells()
    seconds = sum(findings.measured(cell).cpu_seconds for cell in cells)
    scale = findings.plan.scale
    return {
        "cells": len(cells),
        "hours": in_words(seconds),
        "scale": scale.name,
        "repeats": scale.repeats,
        "own": scale.own_repeats,
    }


# ---- sections -----------------------------------------------------------------------------------------


def _first_tables(findings: Findings, draft: Draft) -> None:
    if findings.plan.asked("table1"):
        draft.add_table("table1", "Table 1: the datasets", TABLE_1, *table_1(findings))
    if findings.plan.asked("table2"):
        scale = findings.plan.scale
        grids = {
            "clusters": _span(scale.item_clusters),
            "annotators": _span(scale.annotator_clusters),
            "fmm": _span(scale.fmm_clusters),
            "seeds": scale.seeds,
        }
        draft.add_table("table2", "Table 2: clusters", TABLE_2.format(**grids), *table_2(findings))


def _span(values: tuple[int, ...]) -> str:
    whole = len(values) > 2 and values == tuple(range(values[0], values[-1] + 1))
    return f"{values[0]} to {values[-1]}" if whole else ", ".join(map(str, values))


def _table_3(findings: Findings, draft: Draft) -> None:
    if not findings.plan.asked("table3"):
        return
    scale = findings.plan.scale
    for number, (measure, title) in enumerate(MEASURES.items()):
        story = TABLE_3.format(repeats=scale.repeats, own=scale.own_repeats) if number == 0 else ""
        draft.add_table("table3", f"Table 3: {title}", story, *table_3(findings, measure))
    listed = "\n".join(f"- {miss}" for miss in misses(findings)) or "None."
    draft.add("Exceptions: worse than printed", EXCEPTIONS, tally(findings), listed)
    draft.add("The model that dev chooses", CHOSEN, chosen_table(findings))
    draft.add("Running times", TIMES, times(findings))


def _as_printed(findings: Findings, draft: Draft) -> None:
    plan, scale = findings.plan, findings.plan.scale
    if not scale.as_printed:
        return
    if plan.asked("table3"):
        told = AS_PRINTED.format(
            repeats=scale.repeats,
            own=scale.own_repeats,
            evaluations=scale.evaluations,
            encoder=f"Its encoder is {scale.printed_embedding or 'not among what could be reached'}.",
            glove="" if scale.glove else "No file of GloVe's vectors was given.",
        )
        draft.add_table("as_printed", "As printed", told, *printed_table(findings))
    if any(name in PAPER_SETS for name in plan.asked("table2")):
        told = PRINTED_CLUSTERS.format(seeds=scale.seeds)
        draft.add_table("as_printed", "As printed: clusters", told, *printed_clusters_table(findings))


def _answers(findings: Findings, draft: Draft) -> None:
    found = contrasts(findings)
    if found:
        draft.add("Answers", ANSWERS, answers_text(found))


def _further(findings: Findings, draft: Draft) -> None:
    plan = findings.plan
    if plan.asked("hidden"):
        story = HIDDEN.format(splits=plan.scale.hidden_splits)
        draft.add_table("hidden", "Hidden labels", story, *hidden_table(findings))
    if plan.asked("recover"):
        story = RECOVER.format(draws=plan.scale.draws)
        draft.add_table("recover", "The population from few labels", story, *recovery_table(findings))
    if plan.asked("gold"):
        draft.add_table("gold", "Reference labels", GOLD, *gold_table(findings))


def _figures(findings: Findings, draft: Draft) -> None:
    plan = findings.plan
    for name in plan.asked("recover"):
        numbers = findings.measured(plan.recovery(name)).numbers
        draft.figures[f"recovery-{name}.svg"] = recovery_curve(name, numbers)
    for cell in plan.pictures():
        arrays, names = findings.arrays(cell), plan.datasets[cell.dataset].annotations.classes
        title = f"{cell.dataset}: LDL-NM's training items by t-SNE"
        picture = scatter(arrays["points"], arrays["classes"], list(map(str, names)), title)
        draft.figures[f"tsne-{cell.dataset}.svg"] = picture
    if draft.figures:
        shown = [f"![{name.removesuffix('.svg')}]({name})" for name in sorted(draft.figures)]
        draft.add("Figures", FIGURES, *shown)


def _files(findings: Findings, draft: Draft) -> None:
    lines = [line(f"`{name}.csv`", "the table's numbers, each with its cells") for name in draft.tables]
    lines.append(line("`cells.jsonl`", "every cell: settings, seeds, numbers, processor seconds"))
    draft.add("Files", table(("file", "content"), lines), FILES)

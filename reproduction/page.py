"""The page of an evaluation, written from ``cells.jsonl`` alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dissensus.progress import in_words
from dissensus.tables.atomic import atomic_path
from reproduction.answers import (
    answer_summary,
    answer_table,
    choice_summary,
    modes_table,
    pd_summary,
    sizes_table,
)
from reproduction.columns import BY_PAIR, PAPER_COLUMNS
from reproduction.derived import PRINTED_CELLS
from reproduction.figures import recovery_curve
from reproduction.plan import QUICK
from reproduction.printed import PAPER_SETS
from reproduction.results import Results
from reproduction.tables import (
    as_printed_clusters_table,
    as_printed_table,
    chosen_table,
    exceptions,
    gold_table,
    hidden_table,
    recovery_table,
    table_1,
    table_2,
    table_3,
    times_table,
)

HEAD = """# The paper's evaluation

Written by `{command}` (dissensus {version}, scale "{scale}"); {cells} cells took {hours} of processor time.
How to run it and how to read this page: [reproduce](../../reproduce.md). The settings, seeds and numbers of
all cells are in `cells.jsonl`, from which `python -m reproduction --render DIR` writes this page."""

TABLE_1 = """The paper's figures are in parentheses. Entropy is the mean over items in nats."""

TABLE_2 = """The paper does not say by which criterion it chose K and L. Here `dissensus.select` chooses
K among {item_clusters} and L among {annotator_clusters} (FMM: K among {fmm_clusters}): models are fitted
to the training items and predict half of the labels of each dev item, given item and annotator, from the
other half. KL(empirical ‖ distribution of the item's most likely cluster) on the training items, 1e-5
added to both sides, mean of {seeds} seeds, annotators weighted equally as in the paper's equation. The
fit has seen these labels, so the KL tends to fall as K grows. Labels that the fit has not seen are
below."""

TABLE_3 = """Models are trained on the training items, chosen on the dev items and evaluated on the test
items, from text alone; 1e-5 is added to both sides of the KL. Each cell shows ours with the standard
error over repeats, a sign, and the paper's figure. PD is a CNN on words, trained on the raw label
distributions. FMM and PGM follow the paper: training labels are snapped to clusters, the same CNN is
trained, and its predictions are snapped to the most likely cluster (annotator sum outside, S = 1);
{repeats} trainings, each around a guide with another seed. LDL-NM is the paper's network with layer
sizes and epoch chosen on dev, trained once and evaluated {evaluations} times with dropout left on.
Columns that are not in the paper are trained {own_repeats} times, and SoftmaxRegression and
FineTunedEncoder once. K and L of every guide are chosen by the KL on dev of the same column: K among
{item_clusters} and L among {annotator_clusters} for the columns on embeddings, and both among
{cnn_clusters} for the columns with a CNN. Rows that end in "chosen by labels given item and annotator"
have the K and L of Table 2 instead. "Soft, on embeddings" is the fair comparison with LDL-NM: guides
refine and project softly around softmax regression on the same embeddings. With dropout on, LDL-NM
averages over one mask per annotator, and without annotators over a single mask; the two are therefore
also compared with dropout off.

"Constant" predicts the mean distribution of the training items for every test item, and "uniform" equal
shares of all classes. They show what a prediction without any knowledge of the item reaches."""

ONE_HOT = """The paper prints the accuracy of FMM and LDL-NM over one-hot vectors, element by element."""

EXCEPTIONS = """Figures of the paper's columns that are worse than printed, with the interval over test
items, the CNN before its predictions were snapped, the number of different predicted distributions, the
projection with the annotator sum inside, and the constant that predicts the mean training distribution.
The printed KL of FMM equals that of the constant. In Table 2, KL falls with the number of clusters that
are used."""

CHOSEN = """The column or ensemble with the lowest KL on dev, and its KL on test with a 95 % bootstrap
interval over test items. The target is that of a MiniLM encoder fine-tuned end to end without
annotators."""

TIMES = """Processor time of one pass on one core: the search of K and L or of layer sizes, one training,
one evaluation. The paper used a desktop with a graphics card."""

AS_PRINTED = """The paper's columns with our departures from the paper undone, alone and all together: KL
on test, and below the KL of Table 2 at the paper's K × L. A single departure is trained {own_repeats}
times and all together {repeats} times; LDL-NM is evaluated {evaluations} times with dropout left on,
with the layer sizes of our search. "Shares of the annotators' votes" is the score of the authors' public
code: the label head predicts a label for each stored annotator, and the shares of these labels are the
prediction. Its zeros cost much KL, so that its figures are not comparable with those of the
distributions. The paper states α = γ = τ = 2 for PGM only. For FMM, both this prior and learned ones are
shown; all together has the former. "Proposals from the prior" is Algorithm 2 with the printed δψ and δΩ,
which contain only the prior. These cells can be from another run than the rest of the page."""

ANSWERS = """Differences of two models' losses (first − second) on the same test items, hidden labels or
reserved labels, with 95 % bootstrap intervals over items, and over repeats for the test KL. If the
interval contains zero, it is a tie.
Nothing is corrected for the number of comparisons: of twenty pairs without a difference, about one is
not called a tie."""

NOT_DECIDED = """A quick run has small grids and few repeats. Its verdicts could differ from those of the
full run, so they are not printed."""

QUESTIONS = {
    "PD": (
        "Do models with clusters or annotators outperform PD, a learner without them?",
        "The paper: yes, all of them; this is its first result.",
    ),
    "RQ1": (
        "Do graphical models that cluster items and annotators outperform those that do not?",
        "The paper: no, both PGM columns are behind FMM; the authors suspect overfitting. HPGM clusters "
        "both, and learns the numbers of clusters.",
    ),
    "RQ2": (
        "Do neural models outperform graphical models?",
        "The paper: yes, LDL-NM is ahead of all other columns.",
    ),
    "RQ3": (
        "Do neural models that model items and annotators outperform those that do not?",
        "The paper: yes, without printing the column that leaves annotators out.",
    ),
    "CBCC": (
        "Do item and annotator clusters (PGM) outperform annotator clusters alone (CBCC, Venanzi et al.)?",
        "The paper names this comparison and does not make it. CBCC here has Dirichlet priors on the "
        "confusion matrices of its communities, instead of the logistic-normal priors of Venanzi et al.",
    ),
    "Soft or hard": (
        "Should labels be refined, and predictions projected, softly?",
        "The paper leaves this open: its authors had better results with hard clusters, and expect soft ones "
        "to be better for a comparison with networks. The learner is softmax regression on the embeddings. K "
        "and L are those of Table 2, which were chosen without it.",
    ),
}

HIDDEN = """A fifth of the (item, annotator) pairs is hidden, {hidden_splits} splits: −log P(label) in
nats per hidden label, with the standard error over splits. K and L are chosen on dev by the same
measure: by log P(label | item, annotator), or by log P(label | item). HPGM has its default settings."""

RECOVER = """As in [recovery](../../budget.md): R labels of each item are shown and the others reserved,
{draws} draws; KL(reserved labels ‖ estimate). The size of every model and the smoothing of the counts
are the best in hindsight. "Raw labels" is the number of labels per item that the counts need for the
same KL. The default of `dissensus fit`, chosen without hindsight, is in [default](../default.md)."""

GOLD = """Share of items whose most likely class is the gold label, with all labels shown. K and L are
those of Table 2, which are chosen without gold labels."""

FIGURES = """Recovery curves of the population from few labels, and t-SNE of LDL-NM's embeddings of the
training items, coloured by the most frequent label."""


def write_page(folder: Path) -> list[str]:
    """Write README.md and the recovery curves from the folder's ``cells.jsonl``; return all file names."""
    results = Results.read(folder)
    for name in results.datasets_with("recover"):
        curve = recovery_curve(name, results.numbers(name, "recovery"))
        (folder / f"recovery-{name}.svg").write_text(curve, encoding="utf-8")
    files = [path.name for path in folder.iterdir() if path.is_file()]
    figures = sorted(name for name in files if name.endswith(".svg"))
    with atomic_path(folder / "README.md") as temporary:
        temporary.write_text(page(results, figures), encoding="utf-8")
    return sorted({*files, "README.md"})


def page(results: Results, figures: list[str]) -> str:
    """Return the text of the page."""
    cells = [record for record in results.records.values() if "cell" in record]
    hours = in_words(sum(record["cpu_seconds"] for record in cells))
    names = {"command": results.derived["command"], "version": results.derived["version"]}
    blocks = [HEAD.format(scale=results.scale["name"], cells=len(cells), hours=hours, **names)]

    def section(title: str, *paragraphs: str) -> None:
        grids = ("item_clusters", "annotator_clusters", "fmm_clusters", "cnn_clusters")
        values = results.scale | {name: _span(results.scale[name]) for name in grids}
        blocks.extend([f"## {title}", paragraphs[0].format(**values), *paragraphs[1:]])

    if results.datasets_with("table1"):
        section("Table 1: the datasets", TABLE_1, table_1(results))
    if results.datasets_with("table2"):
        section("Table 2: clusters", TABLE_2, table_2(results))
    if results.datasets_with("table3"):
        section("Table 3: KL(gold ‖ prediction), nats", TABLE_3, table_3(results, "kl"))
        section("Table 3: accuracy", table_3(results, "accuracy"))
        section("Table 3: one-hot accuracy", ONE_HOT, table_3(results, "onehot_accuracy", PAPER_COLUMNS))
        section("Exceptions: worse than printed", EXCEPTIONS, *exceptions(results))
        section("The model chosen on dev", CHOSEN, chosen_table(results))
        section("Running times", TIMES, times_table(results))
    if any(PRINTED_CELLS in file for file in results.records):
        tables = [as_printed_table(results)] if results.datasets_with("table3") else []
        if set(results.datasets_with("table2")) & set(PAPER_SETS):
            tables.append(as_printed_clusters_table(results))
        section("As printed", AS_PRINTED, *tables)
    if results.derived["answers"]:
        section("Answers", ANSWERS)
        blocks.extend(answers(results))
    if results.datasets_with("hidden"):
        section("Hidden labels", HIDDEN, hidden_table(results))
    if results.datasets_with("recover"):
        section("The population from few labels", RECOVER, recovery_table(results))
    if results.datasets_with("gold"):
        section("Gold labels", GOLD, gold_table(results))
    if figures:
        section("Figures", FIGURES, *(f"![{name.removesuffix('.svg')}]({name})" for name in figures))
    return "\n\n".join(blocks) + "\n"


def answers(results: Results) -> Iterator[str]:
    """Yield the blocks of the answers; a quick run has differences and no verdicts."""
    decided = results.scale["name"] != QUICK.name
    if not decided:
        yield NOT_DECIDED
    tables = {"PD": pd_summary, "RQ1": sizes_table, "Soft or hard": modes_table}
    for key, (question, paper) in QUESTIONS.items():
        rows = [row for row in results.derived["answers"] if row["question"] == key]
        if not rows:
            continue
        yield f"### {key}. {question}"
        yield f"{paper} {answer_summary(rows, decided=decided)}"
        if decided and any(row["measure"].endswith(BY_PAIR) for row in rows):
            yield choice_summary(rows)
        if key in tables and (text := tables[key](results)):
            yield text
        yield answer_table(rows, decided=decided)


def _span(values: list[int]) -> str:
    """Write a list of numbers, or its range if it is contiguous."""
    if len(values) > 2 and values == list(range(values[0], values[-1] + 1)):
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values))

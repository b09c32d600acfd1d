"""What the page says about its tables."""

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
equation. It describes labels that the fit has seen, so it always falls as K grows: whether a model describes
the population is told by the labels it has not seen, below."""

TABLE_3 = """Trained on the training items, chosen on the dev items, reported on the test items, from text
alone; 1e-5 added to both sides of the KL. Ours first, with the standard error over repeats, then the paper's
figure; the sign between them says how they compare. PD is a CNN on words taught the raw label distributions.
FMM, PGM and CBCC are the paper's workflow: training labels snapped to the guide's clusters, the same CNN
taught, its predictions snapped to the most likely cluster (annotator sum outside, S = 1). These are trained
{repeats} times with other seeds around one fitted guide. LDL-NM is the paper's network, its layers' sizes
chosen on dev, its best epoch on dev kept, trained once and evaluated {repeats} times with dropout left on.
The columns below the line are trained {own} times (SoftmaxRegression, in which there is no chance, once); an
ensemble averages the predictions of these runs."""

EXCEPTIONS = """Cells of the paper's columns whose mean is above the printed KL or below the printed
accuracy."""

CHOSEN = """Of all columns and ensembles, the one with the lowest KL on dev (a column: the mean of its runs),
and what it reaches on test, with its 95 % bootstrap interval over test items. The line to reach is that of a
MiniLM encoder fine-tuned end to end with no annotator modelled."""

TIMES = """Processor time of a single pass on one core: the search of K and L (or of layer sizes), one
training, one evaluation. The paper's times are those of a desktop with a graphics card, on the slowest of
its datasets."""

ANSWERS = """Differences of the first model's loss and the second's on the same test items, hidden labels or
reserved labels, with 95 % bootstrap intervals over items (items and draws, where labels are drawn). A
difference whose interval holds zero is a tie."""

HIDDEN = """A fifth of the (item, annotator) pairs hidden with all their labels, {splits} splits: −log
P(label) in nats per hidden label (lower is better), with the standard error over splits. K and L are those
of the search."""

RECOVER = """As in [recovery](../../recovery.md): R labels of each item shown, the others kept back, {draws}
draws; KL(labels kept back ‖ estimate). The best of several sizes is taken in hindsight for every model, and
so is the smoothing of the counts. "Worth" is the number of raw labels per item that the counts need for the
same KL."""

GOLD = """The share of items whose most likely class is the reference label, all labels shown. K and L are
those of the search on dev, which looks at labels and not at gold."""

FIGURES = """The population from few labels: read a model's curve against that of the counts, sideways, for
the number of raw labels it is worth. t-SNE of LDL-NM's item embeddings: a dot is a training item, its colour
the most frequent label."""

FILES = """The cells themselves, one JSON file each with predictions beside it, stay in the directory of the
run under `cells/`; `cells.jsonl` holds the same settings and numbers without the predictions."""

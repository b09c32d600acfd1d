"""The scarce-label regime: with R labels per item, does refining them help a learner, and why does it hurt?

Two questions, asked of jq1 and jq3 with 1, 2, 3, 5 and all labels of every training and dev item:

* *New items.* How far from the test items' labels is a learner taught raw label shares, labels refined by a
  guide that has not seen the text (FMM, PGM), and labels refined by GuidedClassifier's default guide?
* *The training items.* How far are the guides' estimates from the labels that were not shown?

Run as ``python -m experiments.scarce [--data DIR] [-o FILE] [--images DIR] [--finished FILE]``.
With such a file, a finished draw is written down at once, and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from dissensus._version import __version__
from dissensus.evaluate.bootstrap import Interval, Resamples
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import embed_items
from dissensus.numerics import Array
from experiments.common import Finished, Values, command_line, write_files
from experiments.draws import Draw, measure
from reproduction.datasets import read_dataset
from reproduction.figures import Points, curves
from reproduction.tables import line, table, yes

COMMAND = "python -m experiments.scarce"
SETS = ("jq1", "jq3")
SHOWN = (1, 2, 3, 5, None)
DRAWS = 5
TAUGHT = {"raw": "raw labels", "FMM": "FMM", "PGM": "PGM", "guided": "guided default"}
RIVALS = {"counts": "smoothed counts", "FMM": "FMM", "PGM": "PGM"}


@dataclass(frozen=True)
class Condition:
    """All draws of one dataset with one number of labels."""

    dataset: str
    n_labels: int | None
    draws: Sequence[Values]

    @property
    def mark(self) -> str:
        """The number of labels, as tables and pictures show it."""
        return "all" if self.n_labels is None else str(self.n_labels)

    @property
    def where(self) -> str:
        """The condition in words."""
        return f"{self.dataset} at R = {self.mark}"

    def rows(self, kind: str, name: str) -> Array:
        """(draws, items): the KL of "test" items by what was taught, or of training "items" by estimate."""
        return np.array([draw[kind][name] for draw in self.draws])

    def interval(self, kind: str, name: str, against: str | None = None) -> Interval:
        """The mean KL, or the mean difference of two, with its interval over items and draws."""
        rows = self.rows(kind, name)
        if against is not None:
            rows = rows - self.rows(kind, against)
        return Resamples(*rows.shape).interval(rows)

    def mean(self, *path: str) -> float:
        """The mean over draws of a number."""
        found = list(self.draws)
        for name in path:
            found = [one[name] for one in found]
        return float(np.mean(found))  # type: ignore[arg-type]

    @property
    def hides(self) -> bool:
        """Whether there are labels that were not shown."""
        return self.n_labels is not None


def measured(data: Path, finished: Finished) -> list[Condition]:
    """Every condition, from the file of finished draws where it knows it."""
    found = []
    for name in SETS:
        parts = embed_items(read_dataset(data / name)).split_items()
        for n_labels in SHOWN:
            draws = range(DRAWS if n_labels is not None else 1)
            keys = {f"{name} | {n_labels} | {draw} | {__version__}": draw for draw in draws}
            values = [
                finished.measured(key, partial(_measured, parts, n_labels, draw))
                for key, draw in keys.items()
            ]
            found.append(Condition(name, n_labels, values))
    return found


def _measured(parts: Mapping[str, Annotations], n_labels: int | None, draw: int) -> Values:
    return measure(Draw.of(parts, n_labels, draw))


# ---- tables ---------------------------------------------------------------------------------------------


def test_row(one: Condition) -> str:
    """Test KL by what was taught, and the differences from raw labels."""
    values = [f"{one.interval('test', name).value:.4f}" for name in TAUGHT]
    gaps = [one.interval("test", name, "raw") for name in ("FMM", "PGM", "guided")]
    return line(one.dataset, one.mark, *values, *map(words, gaps), yes(gaps[-1].low <= 0))


def items_row(one: Condition) -> str:
    """KL of the labels not shown by estimate, and by how much the default is below each."""
    values = [f"{one.interval('items', name).value:.4f}" for name in (*RIVALS, "guided")]
    gaps = [one.interval("items", "guided", rival) for rival in RIVALS]
    S = f"{one.mean('concentration'):.1f}"
    return line(one.dataset, one.mark, *values, *map(words, gaps), S, yes(all(gap.high < 0 for gap in gaps)))


def why_row(one: Condition) -> str:
    """Slopes of targets and of predictions, and what pulling raw labels to the mean costs."""
    slopes = [f"{one.mean('slope', name):.2f}" for name in ("FMM", "PGM", "guided")]
    reach = [f"{one.mean('reach', name):.2f}" for name in ("raw", "FMM", "PGM", "guided")]
    costs = [f"{one.interval('test', name, 'raw').value:+.4f}" for name in ("FMM", "pulled")]
    return line(one.dataset, one.mark, *slopes, *reach, *costs)


def loose_row(one: Condition) -> str:
    """The learner that is hardly regularised."""
    raw, guided = (one.interval("test", f"loose {name}").value for name in ("raw", "guided"))
    gap = one.interval("test", "loose guided", "loose raw")
    return line(one.dataset, one.mark, f"{raw:.4f}", f"{guided:.4f}", words(gap))


def words(gap: Interval) -> str:
    """A difference and its interval."""
    return f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


# ---- findings -------------------------------------------------------------------------------------------


def findings(conditions: Sequence[Condition]) -> str:
    """The answers, each from its intervals."""
    scarce = [one for one in conditions if one.n_labels in (1, 2, 3)]
    blind = [(one, name) for one in conditions for name in ("FMM", "PGM")]
    gaps = {(one.where, name): one.interval("test", name, "raw") for one, name in blind}
    helps = [f"{name} on {where}" for (where, name), gap in gaps.items() if gap.high < 0]
    hurts = [gap.value for gap in gaps.values() if gap.low > 0]
    shares = [_explained(one) for one in scarce]
    return "\n".join(
        [
            f"- **Refining without the text** helps the learner in {len(helps)} of {len(gaps)} cases"
            f"{_listed(helps)}, and hurts it in {len(hurts)}, by {min(hurts):.3f} to {max(hurts):.3f} nats."
            if hurts
            else f"- **Refining without the text** helps the learner in {len(helps)} of {len(gaps)} cases.",
            f"- **Why.** {_why(scarce, shares)}",
            f"- **The default guide** {_default(conditions, scarce)}",
            f"- **The training items.** {_items(scarce)}",
        ]
    )


def _explained(one: Condition) -> float:
    """How much of FMM's damage raw labels suffer when they are pulled to the mean as far."""
    pulled, fmm = (one.interval("test", name, "raw").value for name in ("pulled", "FMM"))
    return pulled / fmm


def _why(scarce: Sequence[Condition], shares: Sequence[float]) -> str:
    slopes = [one.mean("slope", name) for one in scarce for name in ("FMM", "PGM")]
    return (
        f"With one to three labels the refined targets keep {min(slopes):.0%} to {max(slopes):.0%} of the "
        "distance between an item's true distribution and the mean. Raw labels pulled to the mean as far as "
        f"FMM pulls them, and not clustered at all, cost the learner {min(shares):.0%} to {max(shares):.0%} "
        "of what FMM's labels cost it: the pull is the damage."
    )


def _default(conditions: Sequence[Condition], scarce: Sequence[Condition]) -> str:
    gaps = {one.where: one.interval("test", "guided", "raw") for one in conditions}
    kept = [one for one in scarce if gaps[one.where].low <= 0]
    better = [where for where, gap in gaps.items() if gap.high < 0]
    worse = [where for where, gap in gaps.items() if gap.low > 0]
    return (
        f"is not worse than raw labels in {len(kept)} of {len(scarce)} cells with one to three labels; over "
        f"all {len(gaps)} cells it is better in {len(better)}{_listed(better)} and worse in "
        f"{len(worse)}{_listed(worse)}, and the largest difference is "
        f"{max((gap.value for gap in gaps.values()), key=abs):+.4f}."
    )


def _items(scarce: Sequence[Condition]) -> str:
    better = [
        one for one in scarce if all(one.interval("items", "guided", rival).high < 0 for rival in RIVALS)
    ]
    below = [
        1
        - one.interval("items", "guided").value / min(one.interval("items", rival).value for rival in RIVALS)
        for one in scarce
    ]
    return (
        f"The default guide is closer to the labels not shown than smoothed counts, FMM and PGM in "
        f"{len(better)} of {len(scarce)} cells with one to three labels, by {min(below):.0%} to "
        f"{max(below):.0%} of the best of the three."
    )


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


# ---- pictures -------------------------------------------------------------------------------------------


def pictures(conditions: Sequence[Condition]) -> dict[str, str]:
    """Two SVG pictures a dataset, by file name."""
    found = {}
    for name in SETS:
        own = [one for one in conditions if one.dataset == name]
        hiding = [one for one in own if one.hides]
        taught = {title: _points(own, "test", key) for key, title in TAUGHT.items()}
        known = {
            title: _points(hiding, "items", key)
            for key, title in (RIVALS | {"guided": "guided default"}).items()
        }
        axis = "labels per training item"
        found[f"scarce-{name}-test.svg"] = curves(taught, f"{name}: test items, by teacher", axis, "KL, nats")
        found[f"scarce-{name}-items.svg"] = curves(known, f"{name}: the training items", axis, "KL, nats")
    return found


def _points(conditions: Sequence[Condition], kind: str, name: str) -> Points:
    return {one.mark: one.interval(kind, name) for one in conditions}


# ---- the page -------------------------------------------------------------------------------------------

PAGE = """# Scarce labels, measured

Written by `{command}` (dissensus {version}): every figure is computed by
that command. What it means and what follows from it: [scarce labels](../scarce.md).

R random (item, annotator) pairs of every training item are shown, and R of every dev item: whoever has few
labels has few to choose on, too. {n_draws} draws, one where all labels are shown. The learner is
SoftmaxRegression on the embeddings of the offline MiniLM, its strength chosen on the dev labels shown, which
are never refined. Intervals are 95 % of 1,000 paired resamples of items and draws. FMM has 12 clusters, PGM
12 × 8 by variational Bayes, both `refine="soft"`; the guided default is `GuidedClassifier()`, whose guide is
`DirichletRegression()`.

{findings}

## New items

KL(gold ‖ prediction) on the test items, which keep all their labels, by what the learner was taught. Below
zero, a difference speaks for refining; "not worse" means that the default's interval does not lie above zero.

{test}

{test_pictures}

## The training items

KL(labels not shown ‖ estimate). Smoothed counts have the best of 101 strengths in hindsight, FMM the best of
three sizes and PGM the best of four settings, for every draw anew. S is how many labels the text is worth to
the default guide; one label per item says nothing of it, and S is then its prior's mode.

{items}

{items_pictures}

## Why refining without the text hurts

The slope of the targets over the items' true distributions is 1 where targets say what is there on average,
and 0 where they say only the mean. (Shown and hidden labels of an item are independent given its true
distribution, so the slope is the targets' covariance with the hidden labels over that of the raw shares, and
the noise of the labels cancels.) The slope of the default's targets is below 1 too, and does no harm: what a
learner needs is that targets are right *on average over items that look alike*, and these are. The slope of
the predictions is their covariance with gold over gold's variance.

The last two columns are the test KL above that of raw labels: of FMM's labels, and of raw labels that were
moved towards their mean until they had FMM's slope, without any clustering.

{why}

## A learner that overfits

The same learner with a fixed strength of 1e-5, next to no regularisation. Raw labels are no longer enough.

{loose}
"""

TEST_HEAD = ("dataset", "R", *TAUGHT.values(), "FMM − raw", "PGM − raw", "default − raw", "not worse")
ITEMS_HEAD = (
    *("dataset", "R", *RIVALS.values(), "guided default"),
    *("default − counts", "default − FMM", "default − PGM", "S", "better than all"),
)
WHY_HEAD = (
    *("dataset", "R", "targets' slope: FMM", "PGM", "default"),
    *("predictions' slope: raw", "FMM", "PGM", "default", "cost of FMM", "cost of the pull alone"),
)
LOOSE_HEAD = ("dataset", "R", "raw labels", "guided default", "default − raw")


def page(conditions: Sequence[Condition], images: str) -> str:
    """The whole page of results; ``images`` is the folder of the pictures, seen from the page."""
    hiding = [one for one in conditions if one.hides]
    shown = {
        kind: "\n".join(f"![{name}: {kind}]({images}/scarce-{name}-{kind}.svg)" for name in SETS)
        for kind in ("test", "items")
    }
    return PAGE.format(
        command=COMMAND,
        version=__version__,
        n_draws=DRAWS,
        findings=findings(conditions),
        test=table(TEST_HEAD, [test_row(one) for one in conditions]),
        test_pictures=shown["test"],
        items=table(ITEMS_HEAD, [items_row(one) for one in hiding]),
        items_pictures=shown["items"],
        why=table(WHY_HEAD, [why_row(one) for one in hiding]),
        loose=table(LOOSE_HEAD, [loose_row(one) for one in conditions]),
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and its pictures, each whole or not at all."""
    title = "Guided learning from few labels per item"
    parser = command_line(COMMAND, title, "docs/results/scarce.md", finished=True)
    parser.add_argument("--images", type=Path, default=Path("docs/images"), help="folder of the pictures")
    options = parser.parse_args(arguments)
    found = measured(options.data, Finished(options.finished))
    text = page(found, os.path.relpath(options.images, options.output.parent))
    write_files(
        options.output, text, {options.images / name: picture for name, picture in pictures(found).items()}
    )


if __name__ == "__main__":
    main()

"""The models: guides that cluster labels, the columns of Table 3, and their departures from the paper."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dissensus.models.base import Model
from dissensus.models.cbcc import CBCC
from dissensus.models.fmm import FMM
from dissensus.models.hpgm.model import HPGM
from dissensus.models.pgm.model import PGM
from reproduction.annealing import PrintedAnnealing
from reproduction.printed import REPEATS


@dataclass(frozen=True)
class Guide:
    """A graphical model, and which of its numbers of clusters are searched."""

    title: str
    model: type[Model]
    fixed: Mapping[str, Any]
    item_side: bool = True  # whether the number of item clusters is searched
    annotator_side: bool = True  # whether the number of annotator clusters is searched
    weight: float = 0.3  # expected processor seconds of a trial

    def build(self, settings: Mapping[str, Any]) -> Model:
        """Return an unfitted model."""
        return self.model(**self.fixed, **settings)


GUIDES = {
    "fmm": Guide("FMM", FMM, {}, annotator_side=False, weight=0.1),
    "annealing": Guide("PGM (annealing)", PGM, {"inference": "annealing"}, weight=0.7),
    "bp": Guide("PGM (bp)", PGM, {"inference": "bp"}, weight=0.25),
    "vb": Guide("PGM (vb)", PGM, {"inference": "vb"}, weight=0.3),
    "cbcc": Guide("CBCC", CBCC, {}, item_side=False, weight=6.0),
}
HIERARCHICAL = "hpgm"  # HPGM, which learns its numbers of clusters
# Guides of single departures from our settings.
PRINTED_GUIDES = {
    "fmm_vb": Guide(
        "FMM (vb)",
        PGM,
        {"n_annotator_clusters": 1, "inference": "vb", **dict.fromkeys(("alpha", "gamma", "tau"), 2.0)},
    ),
    "fmm_learned": Guide("FMM (vb)", PGM, {"n_annotator_clusters": 1, "inference": "vb"}),
    "printed_annealing": Guide("PGM (annealing)", PrintedAnnealing, {"inference": "annealing"}),
}
ALL_GUIDES = GUIDES | PRINTED_GUIDES | {HIERARCHICAL: Guide("HPGM", HPGM, {}, False, False)}

# Criteria by which numbers of clusters are chosen on dev, each with the parts that use its choice.
PAIR, ITEM, SOFT, CNN = "pair", "item", "soft", "cnn"
CRITERIA = {
    PAIR: ("labels given item and annotator", ("table2", "table3", "hidden", "gold")),
    ITEM: ("labels given the item", ("hidden",)),
    SOFT: ("KL on dev, soft, on embeddings", ("table3",)),
    CNN: ("KL on dev, as in the paper", ("table3",)),
}
# Guides that are searched by a criterion; the choice is used by the columns of the page.
SEARCHED_GUIDES = {
    PAIR: tuple(GUIDES),
    ITEM: tuple(GUIDES),
    SOFT: tuple(GUIDES),
    CNN: ("fmm", "annealing", "bp"),
}


def search_key(guide: str, criterion: str) -> str:
    """Return the name of the search for a guide's numbers of clusters."""
    return guide if criterion == PAIR else f"{guide}-{criterion}"


# Guide and criterion of each search.
SEARCHES = {
    search_key(guide, criterion): (guide, criterion)
    for criterion, guides in SEARCHED_GUIDES.items()
    for guide in guides
}


@dataclass(frozen=True)
class Column:
    """A column of Table 3: its measure, its number of repeats, and the search it depends on."""

    title: str
    kind: str  # the measure
    guide: str | None = None
    search: str | None = None  # the search whose choice it uses
    repeats: str = "repeats"  # field of ``Scale``, or "one" for columns that are deterministic or slow
    weight: float = 10.0  # expected processor seconds of one run
    source: str | None = None  # column whose cells contain this one as well
    variant: str = ""  # name of this one in the cells of ``source``


PAPER_COLUMNS = {
    "pd": Column("PD", "learner"),
    **{
        key: Column(GUIDES[key].title, "guided", key, search_key(key, CNN), weight=weight)
        for key, weight in {"fmm": 10, "annealing": 14, "bp": 12}.items()
    },
    "ldlnm": Column("LDL-NM", "ldlnm", search="ldlnm", repeats="one", weight=60),
    "ldlnm_alone": Column(
        "LDL-NM without annotators", "ldlnm", search="ldlnm_alone", repeats="one", weight=30
    ),
}
PAPER_GUIDES = SEARCHED_GUIDES[CNN]

RAW = "unprojected"  # the predictions of the CNN before they are snapped to clusters
INSIDE = "inside"  # the other projection: annotator sum inside, S chosen on dev
PLAIN = "without_dropout"  # the same network, evaluated without dropout
OTHER = "_by_pair"  # ending of columns whose K × L is chosen by hidden labels
BY_PAIR = f"K × L chosen by {CRITERIA[PAIR][0]}"


def _variants(kind: str, variant: str, words: str, keys: Iterable[str]) -> dict[str, Column]:
    """Return columns that are measured together with those of the paper."""
    return {
        f"{key}_{variant}": Column(f"{PAPER_COLUMNS[key].title}, {words}", kind, source=key, variant=variant)
        for key in keys
    }


FURTHER_COLUMNS = {
    **_variants("guided", RAW, "not snapped", PAPER_GUIDES),
    **_variants("guided", INSIDE, "sum inside, S chosen on dev", PAPER_GUIDES),
    **_variants("ldlnm", PLAIN, "dropout off", ("ldlnm", "ldlnm_alone")),
    # On the features of LDL-NM and without snapping: the fair comparison.
    **{
        f"{key}_soft": Column(
            f"{ALL_GUIDES[key].title}, soft, on embeddings",
            *("guided_soft", key, None if key == HIERARCHICAL else search_key(key, SOFT), "own_repeats", 4),
        )
        for key in (*GUIDES, HIERARCHICAL)
    },
    "guided": Column("GuidedClassifier, defaults", "guided_default", repeats="own_repeats", weight=30),
    "softmax": Column("SoftmaxRegression", "learner", repeats="one", weight=2),
    "ldlnm_default": Column("LDL-NM, defaults", "ldlnm_default", repeats="own_repeats", weight=40),
    "ldlnm_default_alone": Column(
        "LDL-NM, defaults, without annotators", "ldlnm_default", repeats="own_repeats", weight=30
    ),
    "encoder": Column("FineTunedEncoder", "learner", repeats="one", weight=140),
}

# The same columns with K × L chosen by hidden labels: on which choice does a verdict depend?
BY_PAIR_COLUMNS = {
    f"{key}{OTHER}": replace(
        column, title=f"{column.title}, {BY_PAIR}", search=column.guide, repeats="own_repeats"
    )
    for key, column in (PAPER_COLUMNS | FURTHER_COLUMNS).items()
    if column.kind in ("guided", "guided_soft") and column.source is None and column.guide in GUIDES
}

# Refinement and projection, both hard or soft, around softmax regression on the embeddings. K × L is chosen
# by hidden labels, which favours neither.
MODES = tuple(itertools.product(("hard", "soft"), repeat=2))


def mode_key(guide: str, refine: str, project: str) -> str:
    """Return the column of a guide that refines and projects as given."""
    return f"{guide}_{refine}_{project}"


MODE_COLUMNS = {
    mode_key(guide, refine, project): Column(
        f"{GUIDES[guide].title}, refined {refine}, projected {project}",
        *("guided_soft", guide),
        source=f"{guide}_soft{OTHER}",
        variant="" if (refine, project) == ("soft", "soft") else f"{refine}_{project}",
    )
    for guide in PAPER_GUIDES
    for refine, project in MODES
}

COLUMNS = PAPER_COLUMNS | FURTHER_COLUMNS | BY_PAIR_COLUMNS | MODE_COLUMNS
MEASURED_COLUMNS = {key: column for key, column in COLUMNS.items() if column.source is None}


@dataclass(frozen=True)
class Departure:
    """A setting in which one of our columns departs from the paper."""

    title: str  # what the paper does
    settings: Mapping[str, Any]  # settings as in the paper


_RANDOM = Departure("random start", {"start": "random"})
SIZES, GLOVE, ENCODER, REPEATED, EVERYTHING = "sizes", "glove", "encoder", "repeats", "everything"
GUIDE = "guide"  # setting of a departure: another guide
# Titles of departures that depend on the dataset, on files or on an option.
OPTIONAL_DEPARTURES = {SIZES: "its K × L", GLOVE: "GloVe word vectors", ENCODER: "its encoder"}
OPTIONAL_DEPARTURES[REPEATED] = f"none, but {REPEATS} repeats"

# Departures of each column that are settings of its model. The paper's K × L, GloVe vectors and the paper's
# encoder are added where they are available.
DEPARTURES: dict[str, dict[str, Departure]] = {
    "pd": {},
    "fmm": {
        "start": _RANDOM,
        "learned": Departure("variational Bayes with learned priors", {GUIDE: "fmm_learned"}),
        "vb": Departure("variational Bayes with α = γ = 2", {GUIDE: "fmm_vb"}),
    },
    "annealing": {
        "start": _RANDOM,
        "cooling": Departure(
            "T = 1/(t + 1), no ascent", {"temperature": 1.0, "cooling": 1.0, "ascent": False}
        ),
        "proposals": Departure("proposals from the prior, printed δψ and δΩ", {GUIDE: "printed_annealing"}),
    },
    "bp": {"start": _RANDOM, "rounds": Departure("up to ten rounds of messages", {"bp_rounds": 10})},
    "ldlnm": {
        "epoch": Departure("the last of 200 epochs", {"dev_size": 0.0}),
        "rescale": Departure("features as they come", {"rescale": False}),
        "votes": Departure("shares of the annotators' votes", {"head": "label", "reduce": "mode"}),
    },
}


def with_all(departures: Mapping[str, Departure]) -> dict[str, Departure]:
    """Return each departure alone and all of them together; a single one counts as all."""
    settings = {
        name: value for departure in departures.values() for name, value in departure.settings.items()
    }
    if len(departures) == 1:
        return {EVERYTHING: next(iter(departures.values()))}
    return {**departures, EVERYTHING: Departure("all of these", settings)} if departures else {}


# Searches over LDL-NM's layer sizes, and whether annotators are modelled.
NETWORK_SEARCHES = {"ldlnm": True, "ldlnm_alone": False}


def learner_of(name: str, settings: Mapping[str, Any], seed: int) -> Any:
    """Return the unfitted learner of a column, on one thread and without progress bars."""
    if name == "softmax":
        from dissensus.text.learners.softmax import SoftmaxRegression

        return SoftmaxRegression(seed=seed, **settings)
    if name == "encoder":
        from dissensus.text.learners.finetuned import FineTunedEncoder

        return FineTunedEncoder(n_threads=1, progress=False, seed=seed, **settings)
    from reproduction.textcnn import TextCNN

    return TextCNN(n_threads=1, seed=seed, **settings)


def default_guided(seed: int) -> Any:
    """Return GuidedClassifier with the guide and the learner that this library recommends."""
    from dissensus.models.dirichlet_regression import DirichletRegression
    from dissensus.text.guided.classifier import GuidedClassifier

    return GuidedClassifier(DirichletRegression(seed=seed), seed=seed)

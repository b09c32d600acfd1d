"""The cells of an evaluation, and how much is computed.

Later stages depend on the choices of earlier ones, so a plan reads finished cells and yields its cells stage
by stage.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from reproduction.cells import Cell, FinishedCells
from reproduction.columns import (
    CNN,
    COLUMNS,
    CRITERIA,
    DEPARTURES,
    ENCODER,
    EVERYTHING,
    GLOVE,
    GUIDE,
    GUIDES,
    HIERARCHICAL,
    ITEM,
    MEASURED_COLUMNS,
    NETWORK_SEARCHES,
    OPTIONAL_DEPARTURES,
    PAIR,
    REPEATED,
    SEARCHES,
    SIZES,
    SOFT,
    Column,
    Departure,
    default_guided,
    search_key,
    with_all,
)
from reproduction.datasets import Dataset
from reproduction.printed import REPEATS, TABLE_2

PARTS = {
    "table1": "description of the datasets",
    "table2": "K and L chosen on dev, and how well clusters describe the labels",
    "table3": "label distributions of test items from their text",
    "hidden": "hidden labels of known annotators on known items",
    "recover": "the population from few labels",
    "gold": "gold labels: CBCC against PGM",
}
SEED = 0

# Default datasets: those of the paper, two with many labels per item, and the two of Venanzi et al.
DEFAULT_DATASETS = {
    **dict.fromkeys(("jq1", "jq2", "jq3"), ("table1", "table2", "table3", "hidden")),
    **dict.fromkeys(("nli_variation", "tweet_sensitivity"), ("recover",)),
    **dict.fromkeys(("weather_sentiment_amt", "weather_sentiment_cf"), ("hidden", "gold")),
}
HIDDEN_MODELS = ("counts", "dawid_skene", *GUIDES, HIERARCHICAL)
# Expected processor seconds of a trial beside the fit of its guide.
TRIAL_SECONDS = {SOFT: 1.2, CNN: 7.0} | dict.fromkeys((PAIR, ITEM), 0.0)
# Measures that use the sentence embeddings.
ON_FEATURES = ("network_search", "guided_soft", "guided_default", "ldlnm", "ldlnm_default", "picture")
GOLD_MODELS = ("majority", "dawid_skene", "cbcc", "bp", "vb")


# ---- how much is computed -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """The size of an evaluation; every value is part of the settings of the cells that depend on it."""

    name: str = "default"
    # The paper has 100. Trainings differ little compared with test items.
    repeats: int = 5
    own_repeats: int = 5  # repeats of columns that are not in the paper
    # The paper's range, 3 to 20; with fewer of the large sizes a search costs a third.
    item_clusters: tuple[int, ...] = (3, 4, 5, 6, 8, 10, 12, 14, 17, 20)
    annotator_clusters: tuple[int, ...] = (3, 4, 5, 6, 8, 10, 12, 14, 17, 20)
    fmm_clusters: tuple[int, ...] = tuple(range(3, 41))  # FMM's K, for Table 2 and hidden labels
    # K and L for the columns as in the paper: every trial of their search trains a CNN.
    cnn_clusters: tuple[int, ...] = (4, 8, 14, 20)
    cnn_search_repeats: int = 3
    cnn_finalists: int = 3
    communities: tuple[int, ...] = (2, 3, 5)  # of CBCC; 8 and 20 predicted worse on all five datasets
    search_repeats: int = 5  # splits of dev for the finalists of a search
    finalists: int = 6
    sizes: tuple[int, ...] = (3, 5, 8, 11, 14, 17, 20)  # sizes of LDL-NM's item and annotator layers
    seeds: int = 3  # fits per number of Table 2
    hidden_splits: int = 5
    draws: int = 5  # draws of the shown labels in the recovery of the population
    labels_shown: tuple[int, ...] = (1, 2, 4, 8)
    recovery_fmm: tuple[int, ...] = (6, 12)
    recovery_pgm: tuple[tuple[int, int], ...] = ((6, 4), (12, 8), (20, 20))
    embedding: str | None = None  # sentence encoder, as in dissensus.text.embed
    max_items: int | None = None  # items of a dataset; larger ones are sampled with a seed
    cnn: Mapping[str, Any] = field(default_factory=dict)  # non-default settings of the learners
    encoder: Mapping[str, Any] = field(default_factory=dict)
    ldlnm: Mapping[str, Any] = field(default_factory=dict)
    search_patience: int = 30  # epochs without improvement that end a fit in LDL-NM's search
    n_boot: int = 1000
    as_printed: bool = False  # whether departures from the paper are undone, one by one and all together
    printed_embedding: str | None = None  # the paper's encoder, if it can be loaded
    glove: str | None = None  # file of word vectors for the CNN, as in the paper
    evaluations: int = REPEATS  # evaluations of LDL-NM with dropout on, which are cheap
    paper_repeats: int | None = None  # repeats of the paper's columns in a set of rows of their own


DEFAULT = Scale()

QUICK = Scale(
    name="quick",
    repeats=1,
    own_repeats=1,
    item_clusters=(4, 8, 12),
    annotator_clusters=(4, 8, 12),
    fmm_clusters=(5, 10, 20, 40),
    cnn_clusters=(8,),
    cnn_search_repeats=1,
    cnn_finalists=1,
    communities=(3,),
    search_repeats=1,
    finalists=1,
    sizes=(8, 20),
    seeds=1,
    hidden_splits=2,
    draws=2,
    labels_shown=(2, 4),
    recovery_fmm=(6, 12),
    recovery_pgm=((6, 4), (12, 8)),
    max_items=2000,
    encoder={"epochs": 1},
    evaluations=10,
)


# ---- the cells ----------------------------------------------------------------------------------------


def _without_guide(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a departure that are settings of a model."""
    return {name: value for name, value in settings.items() if name != GUIDE}


def possible_parts(data: Dataset) -> tuple[str, ...]:
    """Return the parts that a dataset allows."""
    can = {"table3": data.has_text, "recover": data.has_many_labels, "gold": data.has_gold}
    return tuple(part for part in PARTS if can.get(part, True))


@dataclass(frozen=True)
class Plan:
    """Every cell of an evaluation."""

    scale: Scale
    datasets: Mapping[str, Dataset]
    parts: Mapping[str, Sequence[str]]  # requested parts of each dataset
    only: Sequence[str]  # requested parts of all datasets
    finished: FinishedCells  # results of earlier stages

    def datasets_with(self, *parts: str) -> list[str]:
        """Return the datasets for which any of the parts is requested."""
        return [
            name
            for name in self.datasets
            if any(part in self.parts[name] and part in self.only for part in parts)
        ]

    def stages(self) -> Iterator[list[Cell]]:
        """Yield the cells that can be measured once those of earlier stages are finished."""
        for stage in (self._independent, self._on_searches, self.pictures):
            yield list(stage())

    def cells(self) -> list[Cell]:
        """Return every cell of a finished evaluation."""
        return [cell for stage in self.stages() for cell in stage]

    # ---- stage 1: independent cells ----------------------------------------------------------------

    def _independent(self) -> Iterator[Cell]:
        for name in self.datasets_with("table1", "table3"):
            yield self.description(name)
        for criterion, (_, parts) in CRITERIA.items():
            for name in self.datasets_with(*parts):
                keys = (key for key, search in SEARCHES.items() if search[1] == criterion)
                yield from (self.search(name, key) for key in keys)
        for name in self.datasets_with("table2"):
            yield from self.paper_clusters(name)
            yield from (cell for key in TABLE_2 for cell in self.printed_clusters(name, key).values())
        for name in self.datasets_with("table3"):
            yield from (self.search(name, network) for network in NETWORK_SEARCHES)
            yield from self._columns(name, searched=False)
        for name in self.datasets_with("recover"):
            yield self.recovery(name)

    def description(self, name: str) -> Cell:
        """Return the cell of a line of Table 1."""
        return self._cell(name, "describe", "describe", {}, weight=1)

    def search(self, name: str, key: str) -> Cell:
        """Return the search for numbers of clusters, or for layer sizes of a network."""
        scale = self.scale
        trials = {"repeats": scale.search_repeats, "finalists": scale.finalists, "seed": SEED}
        if key in NETWORK_SEARCHES:
            sides = ("item_size", "annotator_size") if NETWORK_SEARCHES[key] else ("item_size",)
            grid = dict.fromkeys(sides, scale.sizes)
            network = self._paper_network(key) | {"patience": scale.search_patience}
            settings = {"grid": grid, "network": network, **trials}
            return self._cell(
                name, "network_search", f"{key}-search", settings, 4 * self._trials(grid, **trials)
            )
        guide_key, criterion = SEARCHES[key]
        guide, grid = GUIDES[guide_key], self._grid(guide_key, criterion)
        learner: dict[str, Any] = {}
        if criterion == CNN:
            trials |= {"repeats": scale.cnn_search_repeats, "finalists": scale.cnn_finalists}
            learner = {"learner": dict(scale.cnn)}
        settings = {"model": guide.model.__name__, "fixed": guide.fixed, "guide": guide_key, "grid": grid}
        settings |= {"criterion": criterion, **trials, **learner}
        weight = (guide.weight + TRIAL_SECONDS[criterion]) * self._trials(grid, **trials)
        return self._cell(name, "search", f"{key}-search", settings, weight)

    def _grid(self, key: str, criterion: str) -> dict[str, tuple[int, ...]]:
        """Return the numbers of clusters to search; by the measures of columns, all guides have one range."""
        guide, scale = GUIDES[key], self.scale
        K, L = scale.item_clusters, scale.annotator_clusters
        if criterion == CNN:
            K = L = scale.cnn_clusters
        if criterion == PAIR and not guide.annotator_side:
            K = scale.fmm_clusters
        sides = {"n_item_clusters": K} if guide.item_side else {}
        if guide.annotator_side:
            sides["n_annotator_clusters"] = L if guide.item_side else scale.communities
        return sides

    @staticmethod
    def _trials(grid: Mapping[str, Sequence[int]], repeats: int, finalists: int, **_: Any) -> int:
        """Count the fits of a search: the grid once, and the finalists on further splits."""
        cells = math.prod(map(len, grid.values()))
        return cells + min(cells, finalists) * (repeats - 1)

    def _paper_network(self, key: str) -> dict[str, Any]:
        return {**self.scale.ldlnm, "annotators": NETWORK_SEARCHES[key]}

    def paper_clusters(self, name: str) -> Iterator[Cell]:
        """Yield the cells of Table 2 at the paper's K × L."""
        for key, printed in TABLE_2.items():
            if name in printed:
                yield self._clusters(name, key, self.paper_sizes(name, key), f"{key}-clusters-paper")

    def paper_sizes(self, name: str, key: str) -> dict[str, int]:
        """Return the paper's K and L; empty if it prints none."""
        printed = TABLE_2.get(key, {}).get(name)
        if printed is None:
            return {}
        sizes = {"n_item_clusters": printed.item_clusters}
        if GUIDES[key].annotator_side:
            sizes["n_annotator_clusters"] = printed.annotator_clusters or 1
        return sizes

    def _clusters(self, name: str, key: str, sizes: Mapping[str, Any], label: str) -> Cell:
        """Return the cell that compares training labels with their clusters' distributions."""
        settings = {"guide": key, "sizes": dict(sizes), "seeds": list(range(self.scale.seeds))}
        return self._cell(name, "clusters", label, settings, weight=4)

    def printed_clusters(self, name: str, key: str) -> dict[str, Cell]:
        """Return the cells of Table 2 at the paper's K × L, without each departure, and without all."""
        sizes = self.paper_sizes(name, key)
        if not self.scale.as_printed or not sizes:
            return {}
        return {
            label: self._clusters(
                *(name, undone.settings.get(GUIDE, key), {**sizes, **_without_guide(undone.settings)}),
                f"{key}-clusters-printed-{label}",
            )
            for label, undone in with_all(DEPARTURES[key]).items()
        }

    def recovery(self, name: str) -> Cell:
        """Return the cell of the population from few labels."""
        scale = self.scale
        settings = {
            "fmm": scale.recovery_fmm,
            "pgm": scale.recovery_pgm,
            "labels_shown": scale.labels_shown,
            "draws": scale.draws,
            "seed": SEED,
        }
        models = len(scale.recovery_fmm) + 2 * len(scale.recovery_pgm)
        weight = 0.5 * models * len(scale.labels_shown) * scale.draws
        return self._cell(name, "recovery", "recovery", settings, weight)

    # ---- stage 2: cells that use a search -----------------------------------------------------------

    def _on_searches(self) -> Iterator[Cell]:
        for name in self.datasets_with("table2"):
            yield from (self.chosen_clusters(name, key) for key, guide in GUIDES.items() if guide.item_side)
        for name in self.datasets_with("table3"):
            yield from self._columns(name, searched=True)
            for key in DEPARTURES:
                yield from (cell for cells in self.printed(name, key).values() for cell in cells)
        for name in self.datasets_with("hidden"):
            yield from (self.hidden(name, model) for model in HIDDEN_MODELS)
        for name in self.datasets_with("gold"):
            yield from (self.gold(name, model) for model in GOLD_MODELS)

    def chosen_clusters(self, name: str, key: str) -> Cell:
        """Return the cell of Table 2 at the K × L chosen on dev."""
        return self._clusters(name, key, self.chosen(name, key), f"{key}-clusters")

    def chosen(self, name: str, key: str) -> dict[str, Any]:
        """Return the choice of a search; empty until it is finished."""
        content = self.finished.read(self.search(name, key))
        return {} if content is None else dict(content["numbers"]["chosen"])

    def hidden(self, name: str, model: str) -> Cell:
        """Return the cell of a model's predictions of hidden labels."""
        settings = {"model": model, "splits": list(range(self.scale.hidden_splits))}
        settings |= self._sizes(name, model) | self._item_sizes(name, model)
        return self._cell(name, "hidden", f"{model}-hidden", settings, 20)

    def gold(self, name: str, model: str) -> Cell:
        """Return the cell that compares a model's most likely classes with gold labels."""
        settings = {"model": model, "seed": SEED} | self._sizes(name, model)
        return self._cell(name, "gold", f"{model}-gold", settings, weight=2)

    def _sizes(self, name: str, model: str) -> dict[str, Any]:
        return {"sizes": self.chosen(name, model) if model in GUIDES else {}}

    def _item_sizes(self, name: str, model: str) -> dict[str, Any]:
        return {"item_sizes": self.chosen(name, search_key(model, ITEM)) if model in GUIDES else {}}

    # ---- the columns of Table 3 ---------------------------------------------------------------------

    def _columns(self, name: str, *, searched: bool) -> Iterator[Cell]:
        """Yield the cells of the columns that use a search, or of those that do not."""
        for key, column in MEASURED_COLUMNS.items():
            if (column.search is not None) == searched:
                yield from self.column(name, key)

    def column(self, name: str, key: str) -> list[Cell]:
        """Return the cells of a column on a dataset, one per repeat."""
        column = COLUMNS[key]
        if column.source is not None:
            return self.column(name, column.source)
        settings = self._column_settings(name, key, column)
        n_repeats = 1 if column.repeats == "one" else int(getattr(self.scale, column.repeats))
        return [
            self._cell(name, column.kind, key, settings | {"seed": SEED + repeat}, column.weight, repeat)
            for repeat in range(n_repeats)
        ]

    def _column_settings(self, name: str, key: str, column: Column) -> dict[str, Any]:
        scale = self.scale
        chosen = {} if column.search is None else self.chosen(name, column.search)
        if column.kind == "ldlnm":
            network = self._paper_network(key) | chosen
            return {"network": network, "evaluations": scale.evaluations}
        if column.kind == "ldlnm_default":
            return {"network": {**scale.ldlnm, "annotators": key == "ldlnm_default"}}
        if column.kind == "guided":
            return {"guide": column.guide, "sizes": chosen, "learner": dict(scale.cnn)}
        if column.kind == "guided_soft":
            return {"guide": column.guide, "sizes": chosen}
        if column.kind == "guided_default":
            return {"model": repr(default_guided(SEED))}
        learners = {"pd": scale.cnn, "encoder": {"model": scale.embedding, **scale.encoder}}
        return {"learner": dict(learners.get(key, {}))}

    # ---- as printed ---------------------------------------------------------------------------------

    def departures(self, name: str, key: str) -> dict[str, Departure]:
        """Return the departures of a column from the paper that can be undone here, and all together."""
        return self._undone(name, key) | self._repeated(key)

    def _repeated(self, key: str) -> dict[str, Departure]:
        """Return the paper's number of repeats, if it is requested; LDL-NM has it in any case."""
        repeated = self.scale.paper_repeats and COLUMNS[key].repeats != "one"
        return {REPEATED: Departure(OPTIONAL_DEPARTURES[REPEATED], {})} if repeated else {}

    def _undone(self, name: str, key: str) -> dict[str, Departure]:
        if not self.scale.as_printed:
            return {}
        departures = dict(DEPARTURES[key])
        sizes = self.paper_sizes(name, key)
        if sizes:
            departures[SIZES] = Departure(OPTIONAL_DEPARTURES[SIZES], sizes)
        if key != "ldlnm" and self.glove:
            departures[GLOVE] = Departure(OPTIONAL_DEPARTURES[GLOVE], {GLOVE: self.glove})
        if key == "ldlnm" and self.datasets[name].as_printed is not None:
            encoder = {ENCODER: self.scale.printed_embedding}
            departures[ENCODER] = Departure(OPTIONAL_DEPARTURES[ENCODER], encoder)
        return with_all(departures)

    @cached_property
    def glove(self) -> str:
        """Digest of the file of word vectors; empty without one."""
        if self.scale.glove is None:
            return ""
        with Path(self.scale.glove).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def printed(self, name: str, key: str) -> dict[str, list[Cell]]:
        """Return the cells of a column without each departure from the paper, and without all."""
        column, cells = COLUMNS[key], dict[str, list[Cell]]()
        for label, departure in self.departures(name, key).items():
            settings = self._printed_settings(name, key, departure.settings)
            several = {EVERYTHING: self.scale.repeats, REPEATED: self.scale.paper_repeats}
            n_repeats = several.get(label) or self.scale.own_repeats
            cells[label] = [
                self._cell(
                    *(name, column.kind, f"{key}-printed-{label}", settings | {"seed": SEED + repeat}),
                    *(column.weight, repeat),
                )
                for repeat in range(1 if column.repeats == "one" else n_repeats)
            ]
        return cells

    def _printed_settings(self, name: str, key: str, departure: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a column combined with those of a departure."""
        settings, departure = self._column_settings(name, key, COLUMNS[key]), dict(departure)
        if key == "ldlnm":
            encoder = departure.pop(ENCODER, None)
            return settings | {"network": settings["network"] | departure, ENCODER: encoder}
        glove = {GLOVE: departure.pop(GLOVE)} if GLOVE in departure else {}
        learner = {"learner": settings["learner"] | glove}
        if key == "pd":
            return learner
        guide = departure.get(GUIDE, settings[GUIDE])
        sizes = settings["sizes"] | _without_guide(departure)
        return settings | learner | {GUIDE: guide, "sizes": sizes}

    # ---- stage 3: pictures --------------------------------------------------------------------------

    def pictures(self) -> Iterator[Cell]:
        """Yield the t-SNE pictures of LDL-NM's training items, if openTSNE is installed."""
        if importlib.util.find_spec("openTSNE") is not None:
            yield from map(self._picture, self.datasets_with("table3"))

    def _picture(self, name: str) -> Cell:
        network = self.column(name, "ldlnm")[0]
        settings = {"of": network.path, "network": network.settings, "seed": SEED}
        return self._cell(name, "picture", "tsne", settings, weight=10)

    def _cell(
        self, dataset: str, kind: str, name: str, settings: Mapping[str, Any], weight: float, repeat: int = 0
    ) -> Cell:
        data = self.datasets[dataset]
        all_settings = {**settings, "data": data.fingerprint, "seeded_split": data.seeded}
        on_features = (kind, name) == ("learner", "softmax") or settings.get("criterion") == SOFT
        if kind in ON_FEATURES or on_features:
            encoded = data.as_printed if settings.get(ENCODER) and data.as_printed else data
            all_settings["features"] = encoded.features_fingerprint
        # weights refer to the size of the paper's datasets
        return Cell(dataset, kind, name, repeat, all_settings, weight * data.annotations.n_labels / 20_000)

"""Which cells there are, and how much is computed for them.

Later stages build on what earlier ones chose, so a plan reads finished cells and is asked stage by stage.
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
    COLUMNS,
    DEPARTURES,
    ENCODER,
    EVERYTHING,
    GLOVE,
    GUIDES,
    MEASURED_COLUMNS,
    NETWORK_SEARCHES,
    SIZES,
    Column,
    Departure,
    Guide,
    shipped,
    with_all,
)
from reproduction.datasets import Dataset
from reproduction.printed import REPEATS, TABLE_2

PARTS = {
    "table1": "what the datasets are",
    "table2": "K and L chosen on dev, and how well clusters describe the labels",
    "table3": "label distributions of test items from their text",
    "hidden": "hidden labels of known annotators on known items",
    "recover": "the population from few labels",
    "gold": "reference labels: CBCC against PGM",
}
SEED = 0

# Without --sets: the paper's data, two sets with many labels per item, and the two of Venanzi and co-authors.
USUAL = {
    **dict.fromkeys(("jq1", "jq2", "jq3"), ("table1", "table2", "table3", "hidden")),
    **dict.fromkeys(("nli_variation", "tweet_sensitivity"), ("recover",)),
    **dict.fromkeys(("weather_sentiment_amt", "weather_sentiment_cf"), ("hidden", "gold")),
}
HIDDEN_MODELS = ("counts", "dawid_skene", *GUIDES)
# Measures that look at the sentence embeddings.
ON_FEATURES = ("network_search", "guided_soft", "guided_default", "ldlnm", "ldlnm_default", "picture")
GOLD_MODELS = ("majority", "dawid_skene", "cbcc", "bp", "vb")


# ---- how much is computed -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """A size of the whole evaluation; every value goes into the settings of the cells it decides."""

    name: str = "default"
    # The paper has 100. What differs between trainings is small beside what differs between test items.
    repeats: int = 5
    own_repeats: int = 2  # of columns that the paper does not have
    # The paper's ranges, 3 to 20; fewer sizes among the large ones make a search cost a third.
    item_clusters: tuple[int, ...] = (3, 4, 5, 6, 8, 10, 12, 14, 17, 20)
    annotator_clusters: tuple[int, ...] = (3, 4, 5, 6, 8, 10, 12, 14, 17, 20)
    fmm_clusters: tuple[int, ...] = tuple(range(3, 41))
    communities: tuple[int, ...] = (2, 3, 5)  # of CBCC; with 8 and 20 it foresaw less, on all five sets
    search_repeats: int = 5  # splits of dev on which the finalists of a search are tried
    finalists: int = 6
    sizes: tuple[int, ...] = (3, 5, 8, 11, 14, 17, 20)  # of LDL-NM's item and annotator layers
    seeds: int = 3  # fits behind a number of Table 2
    hidden_splits: int = 5
    draws: int = 5  # of the labels shown, in the recovery of the population
    labels_shown: tuple[int, ...] = (1, 2, 4, 8)
    recovery_fmm: tuple[int, ...] = (6, 12)
    recovery_pgm: tuple[tuple[int, int], ...] = ((6, 4), (12, 8), (20, 20))
    embedding: str | None = None  # the sentence encoder, as in dissensus.text.embed
    max_items: int | None = None  # of a set; more are sampled with a seed
    cnn: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the learners' own
    encoder: Mapping[str, Any] = field(default_factory=dict)
    ldlnm: Mapping[str, Any] = field(default_factory=dict)
    search_patience: int = 30  # epochs without a better one that end a fit in LDL-NM's search
    n_boot: int = 1000
    as_printed: bool = False  # whether every departure from the paper is undone, too, one by one and all
    printed_embedding: str | None = None  # the paper's encoder, where it can be had
    glove: str | None = None  # a file of word vectors for the CNN, as the paper has them
    evaluations: int = REPEATS  # of LDL-NM as printed, which are cheap


DEFAULT = Scale()

QUICK = Scale(
    name="quick",
    repeats=2,
    own_repeats=1,
    item_clusters=(4, 8, 12),
    annotator_clusters=(4, 8, 12),
    fmm_clusters=(5, 10, 20, 40),
    communities=(3, 8),
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
    encoder={"epochs": 2},
    evaluations=10,
)


# ---- which cells --------------------------------------------------------------------------------------


def possible_parts(data: Dataset) -> tuple[str, ...]:
    """What can be asked of a dataset that was named."""
    can = {"table3": data.has_text, "recover": data.has_many_labels, "gold": data.has_gold}
    return tuple(part for part in PARTS if can.get(part, True))


@dataclass(frozen=True)
class Plan:
    """Every cell of an evaluation."""

    scale: Scale
    datasets: Mapping[str, Dataset]
    parts: Mapping[str, Sequence[str]]  # dataset -> what is asked of it
    only: Sequence[str]  # parts, among all
    finished: FinishedCells  # what earlier stages found

    def asked(self, part: str) -> list[str]:
        """The datasets of which a part is asked."""
        return [name for name in self.datasets if part in self.parts[name] and part in self.only]

    def stages(self) -> Iterator[list[Cell]]:
        """Cells that can be run once those of the earlier stages are finished."""
        for stage in (self._independent, self._on_searches, self.pictures):
            yield list(stage())

    def cells(self) -> list[Cell]:
        """Every cell of a finished evaluation."""
        return [cell for stage in self.stages() for cell in stage]

    # ---- stage 1: whatever needs nothing else -------------------------------------------------------

    def _independent(self) -> Iterator[Cell]:
        for name in self._either("table1", "table3"):
            yield self.description(name)
        for name in self._either("table2", "table3", "hidden", "gold"):
            yield from (self.search(name, guide) for guide in GUIDES)
        for name in self.asked("table2"):
            yield from self.paper_clusters(name)
            yield from (cell for key in TABLE_2 for cell in self.printed_clusters(name, key).values())
        for name in self.asked("table3"):
            yield from (self.search(name, network) for network in NETWORK_SEARCHES)
            yield from self._columns(name, searched=False)
        for name in self.asked("recover"):
            yield self.recovery(name)

    def _either(self, *parts: str) -> list[str]:
        """Datasets of which any of these parts is asked."""
        return [name for name in self.datasets if any(name in self.asked(part) for part in parts)]

    def description(self, name: str) -> Cell:
        """A line of Table 1."""
        return self._cell(name, "describe", "describe", {}, weight=1)

    def search(self, name: str, key: str) -> Cell:
        """The search for numbers of clusters, or for the sizes of a network's layers."""
        scale = self.scale
        trials = {"repeats": scale.search_repeats, "finalists": scale.finalists, "seed": SEED}
        if key in NETWORK_SEARCHES:
            sides = ("item_size", "annotator_size") if NETWORK_SEARCHES[key] else ("item_size",)
            grid = dict.fromkeys(sides, scale.sizes)
            network = self._paper_network(key) | {"patience": scale.search_patience}
            settings = {"grid": grid, "network": network, **trials}
            return self._cell(name, "network_search", f"{key}-search", settings, 4 * self._trials(grid))
        guide = GUIDES[key]
        grid = self._grid(guide)
        settings = {"model": guide.model.__name__, "fixed": guide.fixed, "grid": grid, **trials}
        weight = guide.weight * self._trials(grid)
        return self._cell(name, "search", f"{key}-search", settings | {"guide": key}, weight)

    def _grid(self, guide: Guide) -> dict[str, tuple[int, ...]]:
        """The numbers of clusters tried."""
        scale = self.scale
        sides: dict[str, tuple[int, ...]] = {}
        if guide.item_side:
            sides["n_item_clusters"] = scale.item_clusters if guide.annotator_side else scale.fmm_clusters
        if guide.annotator_side:
            sides["n_annotator_clusters"] = scale.annotator_clusters if guide.item_side else scale.communities
        return sides

    def _trials(self, grid: Mapping[str, Sequence[int]]) -> int:
        """Fits of a search: every cell of the grid once, the finalists on further splits."""
        cells = math.prod(map(len, grid.values()))
        return cells + min(cells, self.scale.finalists) * (self.scale.search_repeats - 1)

    def _paper_network(self, key: str) -> dict[str, Any]:
        return {**self.scale.ldlnm, "annotators": NETWORK_SEARCHES[key]}

    def paper_clusters(self, name: str) -> Iterator[Cell]:
        """Table 2 with the paper's own K × L."""
        for key, printed in TABLE_2.items():
            if name in printed:
                yield self._clusters(name, key, self.paper_sizes(name, key), f"{key}-clusters-paper")

    def paper_sizes(self, name: str, key: str) -> dict[str, int]:
        """The paper's own K and L; nothing where it does not say."""
        printed = TABLE_2.get(key, {}).get(name)
        if printed is None:
            return {}
        sizes = {"n_item_clusters": printed.item_clusters}
        if GUIDES[key].annotator_side:
            sizes["n_annotator_clusters"] = printed.annotator_clusters or 1
        return sizes

    def _clusters(self, name: str, key: str, sizes: Mapping[str, Any], label: str) -> Cell:
        """How far the labels of the training items are from their clusters' distributions."""
        settings = {"guide": key, "sizes": dict(sizes), "seeds": list(range(self.scale.seeds))}
        return self._cell(name, "clusters", label, settings, weight=4)

    def printed_clusters(self, name: str, key: str) -> dict[str, Cell]:
        """Table 2 at the paper's K × L, with each departure from the paper undone, and with all."""
        sizes = self.paper_sizes(name, key)
        if not self.scale.as_printed or not sizes:
            return {}
        return {
            one: self._clusters(name, key, {**sizes, **undone.settings}, f"{key}-clusters-printed-{one}")
            for one, undone in with_all(DEPARTURES[key]).items()
        }

    def recovery(self, name: str) -> Cell:
        """The population from few labels."""
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

    # ---- stage 2: what builds on a search -----------------------------------------------------------

    def _on_searches(self) -> Iterator[Cell]:
        for name in self.asked("table2"):
            yield from (self.chosen_clusters(name, key) for key, guide in GUIDES.items() if guide.item_side)
        for name in self.asked("table3"):
            yield from self._columns(name, searched=True)
            for key in DEPARTURES:
                yield from (cell for cells in self.printed(name, key).values() for cell in cells)
        for name in self.asked("hidden"):
            yield from (self.hidden(name, model) for model in HIDDEN_MODELS)
        for name in self.asked("gold"):
            yield from (self.gold(name, model) for model in GOLD_MODELS)

    def chosen_clusters(self, name: str, key: str) -> Cell:
        """Table 2 with the K × L chosen on dev."""
        return self._clusters(name, key, self.chosen(name, key), f"{key}-clusters")

    def chosen(self, name: str, key: str) -> dict[str, Any]:
        """What the finished search chose; nothing while it is not finished."""
        measured = self.finished.read(self.search(name, key))
        return {} if measured is None else dict(measured.numbers["chosen"])

    def hidden(self, name: str, model: str) -> Cell:
        """A model asked for labels it was not shown."""
        settings = {"model": model, "splits": list(range(self.scale.hidden_splits))}
        return self._cell(name, "hidden", f"{model}-hidden", settings | self._sizes(name, model), 10)

    def gold(self, name: str, model: str) -> Cell:
        """A model's most likely classes against reference labels."""
        settings = {"model": model, "seed": SEED} | self._sizes(name, model)
        return self._cell(name, "gold", f"{model}-gold", settings, weight=2)

    def _sizes(self, name: str, model: str) -> dict[str, Any]:
        return {"sizes": self.chosen(name, model) if model in GUIDES else {}}

    # ---- the columns of Table 3 ---------------------------------------------------------------------

    def _columns(self, name: str, *, searched: bool) -> Iterator[Cell]:
        """The columns that build on a search, or those that do not."""
        for key, column in MEASURED_COLUMNS.items():
            if (column.search is not None) == searched:
                yield from self.column(name, key)

    def column(self, name: str, key: str) -> list[Cell]:
        """Every repeat of a column on a dataset."""
        column = COLUMNS[key]
        if column.of is not None:
            return self.column(name, column.of)
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
            return {"network": network, "evaluations": scale.repeats}
        if column.kind == "ldlnm_default":
            return {"network": {**scale.ldlnm, "annotators": key == "ldlnm_default"}}
        if column.kind == "guided":
            return {"guide": column.search, "sizes": chosen, "learner": dict(scale.cnn)}
        if column.kind == "guided_soft":
            return {"guide": column.search, "sizes": chosen}
        if column.kind == "guided_default":
            return {"model": repr(shipped(SEED))}
        learners = {"pd": scale.cnn, "encoder": {"model": scale.embedding, **scale.encoder}}
        return {"learner": dict(learners.get(key, {}))}

    # ---- the same as printed ------------------------------------------------------------------------

    def departures(self, name: str, key: str) -> dict[str, Departure]:
        """What the paper does otherwise than a column, as far as it can be done here; all of it last."""
        if not self.scale.as_printed:
            return {}
        found = dict(DEPARTURES[key])
        sizes = self.paper_sizes(name, key)
        if sizes:
            found[SIZES] = Departure("its K × L", sizes)
        if key != "ldlnm" and self.glove:
            found[GLOVE] = Departure("word vectors from a file of GloVe's", {GLOVE: self.glove})
        if key == "ldlnm" and self.datasets[name].as_printed is not None:
            found[ENCODER] = Departure("its encoder", {ENCODER: self.scale.printed_embedding})
        return with_all(found)

    @cached_property
    def glove(self) -> str:
        """What the file of word vectors is told from others by; empty where none is given."""
        if self.scale.glove is None:
            return ""
        with Path(self.scale.glove).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def printed(self, name: str, key: str) -> dict[str, list[Cell]]:
        """A column with each departure from the paper undone, and with all of them."""
        column, cells = COLUMNS[key], dict[str, list[Cell]]()
        for one, departure in self.departures(name, key).items():
            settings = self._printed_settings(name, key, departure.settings, everything=one == EVERYTHING)
            n_repeats = self.scale.repeats if one == EVERYTHING else self.scale.own_repeats
            cells[one] = [
                self._cell(
                    *(name, column.kind, f"{key}-printed-{one}", settings | {"seed": SEED + repeat}),
                    *(column.weight, repeat),
                )
                for repeat in range(1 if column.repeats == "one" else n_repeats)
            ]
        return cells

    def _printed_settings(
        self, name: str, key: str, given: Mapping[str, Any], *, everything: bool
    ) -> dict[str, Any]:
        """A column's settings with those of a departure, each in its place."""
        settings, given = self._column_settings(name, key, COLUMNS[key]), dict(given)
        if key == "ldlnm":
            encoder = given.pop(ENCODER, None)
            network = settings["network"] | given
            evaluations = self.scale.evaluations if everything else settings["evaluations"]
            return {"network": network, "evaluations": evaluations, ENCODER: encoder}
        glove = {GLOVE: given.pop(GLOVE)} if GLOVE in given else {}
        learner = {"learner": settings["learner"] | glove}
        return learner if key == "pd" else settings | learner | {"sizes": settings["sizes"] | given}

    # ---- stage 3: pictures --------------------------------------------------------------------------

    def pictures(self) -> Iterator[Cell]:
        """t-SNE of LDL-NM's training items, where it is installed."""
        if importlib.util.find_spec("openTSNE") is not None:
            yield from map(self._picture, self.asked("table3"))

    def _picture(self, name: str) -> Cell:
        network = self.column(name, "ldlnm")[0]
        settings = {"of": network.path, "network": network.settings, "seed": SEED}
        return self._cell(name, "picture", "tsne", settings, weight=10)

    def _cell(
        self, dataset: str, kind: str, name: str, settings: Mapping[str, Any], weight: float, repeat: int = 0
    ) -> Cell:
        data = self.datasets[dataset]
        whole = {**settings, "data": data.fingerprint, "seeded_split": data.seeded}
        if kind in ON_FEATURES or (kind, name) == ("learner", "softmax"):
            encoded = data.as_printed if settings.get(ENCODER) and data.as_printed else data
            whole["features"] = encoded.features_fingerprint
        # A set of other size than the paper's takes as much longer or shorter.
        return Cell(dataset, kind, name, repeat, whole, weight * data.annotations.n_labels / 20_000)

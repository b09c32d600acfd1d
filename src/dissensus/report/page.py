"""The page: one HTML file that needs no network and lets nothing from the data run.

Its content is gathered first, as plain values (``quality.py``, ``clusters.py``, ``items.py`` and
``annotators.py``, the sections of the page), put into sentences (``sentences.py``), and placed into a
template with its style and script (``assets/``). The data stand in a ``<script type="application/json">``
with every ``<`` escaped, and the script shows them as text only. A Content-Security-Policy allows this one
script and this one style, by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus._version import __version__
from dissensus.data.annotations import Annotations
from dissensus.errors import DataError
from dissensus.execution.progress import Progress, ShowProgress, shown, silent
from dissensus.io.atomic import atomic_path
from dissensus.io.results import finite
from dissensus.models import title_of
from dissensus.models.base import Model, as_annotations
from dissensus.models.bradley_terry import BradleyTerry
from dissensus.models.ratings import NumericRatings
from dissensus.models.sets import LabelSets
from dissensus.report import sentences
from dissensus.report.annotators import (
    annotator_columns,
    crosstabs,
    judged,
    label_rows,
    minority_views,
    page_order,
)
from dissensus.report.clusters import Grouping, borrowed_grouping, cluster_content, grouping_of
from dissensus.report.items import (
    Projection,
    item_columns,
    map_content,
    overturned,
    overturned_places,
    texts_of,
    true_classes,
)
from dissensus.report.judges import judge_content
from dissensus.report.quality import COUNTS_TITLE, quality_content, search_content, trace_content
from dissensus.report.ranking import ranking_page
from dissensus.report.ratings import ratings_page
from dissensus.report.sets import sets_page
from dissensus.selection.compare import HeldOut

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

CLEAR, SPLIT = 2 / 3, 1 / 2  # shares of the population that make an answer clear, or fail to
MOST_ROWS = 400_000  # labels that a page carries one by one
SCRIPTS = ("base", "table", "items", "annotators", "judges", "clusters", "map", "fitting", "page")


def write_report(
    model: Model,
    annotations: Any,
    path: str | Path,
    *,
    title: str | None = None,
    texts: Sequence[str] | str | None = None,
    anonymise: bool = False,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None = None,
    recovery: Any = None,
    selection: Any = None,
    command: str = "",
    projection: Projection = "auto",
    test_size: float = 0.2,
    seed: int = 0,
    progress: ShowProgress = None,
) -> Path:
    """Write a fitted model and the labels it was fitted to as one self-contained HTML page.

    Parameters
    ----------
    model, annotations
        The fitted model and its labels.
    path
        The file to write.
    title
        Of the page; the model's name without one.
    texts
        The items' texts, one an item, or the column of the item table that has them. Without either, a column
        called ``text`` (or the like) is taken.
    anonymise
        Numbers in place of annotator ids, in random order; rare values of side columns are lumped together.
    held_out
        Scores on hidden labels that a run already has (``Run.held_out``). None: the model, smoothed counts,
        FMM and Dawid–Skene are compared here, hiding ``test_size`` of the pairs; an empty sequence leaves it
        out.
    recovery
        What :func:`dissensus.recover` gave for this model; None: a quick estimate on a part of the items.
    selection
        What :func:`dissensus.select` gave, or the rows of its table, for the surface over K and L.
    command
        The command that made it, to be shown.
    projection
        Of the map: "pca" or "tsne" (needs openTSNE; slow from some thousand items); "auto" takes the first.
    progress
        True or False, a function told (what, share done), or None: a bar on a terminal.
    """
    known = as_annotations(annotations)
    title = title or f"{title_of(model)}: {known.n_items:,} items"
    if isinstance(model, NumericRatings | BradleyTerry | LabelSets):
        check_match(model, known)
        with atomic_path(path) as temporary:
            if isinstance(model, NumericRatings):
                text = ratings_page(model, known, title, held_out, command, anonymise)
            elif isinstance(model, LabelSets):
                text = sets_page(model, known, title, command)
            else:
                text = ranking_page(model, known, title, held_out, command, anonymise)
            temporary.write_text(text, encoding="utf-8", errors="replace")
        return Path(path)
    with shown(progress) as tell, atomic_path(path) as temporary:
        request = Request(
            model,
            known,
            title,
            _checked_texts(texts, known),
            anonymise,
            held_out,
            recovery,
            selection,
            command,
            projection,
            test_size,
            seed,
            tell,
        )
        temporary.write_text(page(gather(request)), encoding="utf-8", errors="replace")
    return Path(path)


def _checked_texts(texts: Sequence[str] | str | None, annotations: Any) -> list[str] | None:
    if texts is None or isinstance(texts, str):
        return texts_of(annotations, texts)
    if len(texts) != annotations.n_items:
        raise DataError(f"{len(texts)} texts were given for {annotations.n_items} items; give one an item")
    return [str(text) for text in texts]


# ---- its content: plain values, no HTML ---------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What is to be reported, and how."""

    model: Model
    annotations: Annotations
    title: str
    texts: list[str] | None
    anonymise: bool
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None
    recovery: Any
    selection: Any
    command: str
    projection: Projection
    test_size: float
    seed: int
    progress: Progress = silent


def gather(request: Request) -> dict[str, Any]:
    """The page's content, section by section."""
    model, annotations = request.model, request.annotations
    check_match(model, annotations)
    request.progress("looking for groups", 0.0)
    own = grouping_of(model, annotations)
    shown = own
    if own is None or own.annotators is None:
        shown = borrowed_grouping(annotations, request.seed) or own
    request.progress("judging annotators", 0.1)
    found = None if annotations.anonymous else judged(annotations, model)
    spam = None if found is None else found.verdict == "spam"
    information = None if found is None else found.information
    content: dict[str, Any] = {
        "title": request.title,
        "version": __version__,
        "command": request.command,
        "model": title_of(model),
        "true_classes": true_classes(model),
        "classes": [str(name) for name in annotations.classes],
        "data": data_content(annotations),
        "quality": _quality(request),
        "items": item_columns(model, annotations, own, shown, request.texts),
        "overturned": overturned(model, annotations, own, information),
        "n_overturned": len(overturned_places(model, annotations)),
        "intervals": model.intervals_are,
        "clusters": None if shown is None else cluster_content(annotations, shown, spam),
        "map": map_content(model, annotations, shown, request.projection, request.seed),
        "search": search_content(request.selection),
        "trace": trace_content(model),
        "judges": judge_content(annotations, request.anonymise),
        **_people(request, shown, found),
    }
    return content | {"findings": findings(content, model, annotations)}


def check_match(model: Model, annotations: Annotations) -> None:
    """The labels must be those of the model's items and classes, in its order."""
    same = (
        model.item_vocabulary_ == annotations.item_vocabulary
        and model.class_vocabulary_ == annotations.class_vocabulary
        and (annotations.anonymous or model.annotator_vocabulary_ == annotations.annotator_vocabulary)
    )
    if not same:
        raise DataError(
            f"the labels ({annotations.n_items:,} items, {annotations.n_annotators:,} annotators) are not "
            f"those of the model ({len(model.items_):,} items, {len(model.annotators_):,} annotators); "
            "give the same labels, read with the same options"
        )


def data_content(annotations: Annotations) -> dict[str, Any]:
    """How much there is of everything."""
    from dissensus.data.description import describe

    found = describe(annotations)
    return {
        "n_items": found.n_items,
        "n_annotators": found.n_annotators,
        "n_labels": found.n_labels,
        "per_item": found.labels_per_item.mean,
        "per_annotator": None if found.labels_per_annotator is None else found.labels_per_annotator.median,
        "class_counts": list(found.class_counts.values()),
        "n_unlabelled": found.n_unlabelled_items,
        "n_parts": found.n_parts,
        "n_gold": found.n_gold,
        "notes": [*_columns(found.columns), *found.notes],
    }


def _columns(taken: Mapping[str, str]) -> list[str]:
    """What was read from which column of the file."""
    words = ", ".join(f"{role} from {name}" for role, name in taken.items())
    return [f"Read {words}."] if words else []


def _quality(request: Request) -> dict[str, Any]:
    return quality_content(
        request.model,
        request.annotations,
        held_out=request.held_out,
        recovery=request.recovery,
        test_size=request.test_size,
        seed=request.seed,
        progress=request.progress,
    )


def _people(request: Request, shown: Grouping | None, found: AnnotatorVerdicts | None) -> dict[str, Any]:
    """Annotators and single labels; where nobody is named, label counts."""
    annotations = request.annotations
    order = page_order(annotations, request.anonymise)
    if annotations.anonymous or annotations.n_labels > MOST_ROWS:
        rows: dict[str, Any] = {"counts": annotations.counts.ravel()}
    else:
        rows = label_rows(annotations, order)
    if annotations.anonymous:
        return {"annotators": None, "crosstabs": [], "rows": rows}
    return {
        "annotators": annotator_columns(annotations, found, shown, request.anonymise, order),
        "views": [] if found is None else minority_views(found),
        "crosstabs": crosstabs(annotations, shown, request.anonymise),
        "rows": rows,
        "verdicts": None if found is None else found.counts(),
    }


# ---- the three sentences ------------------------------------------------------------------------------


def findings(content: dict[str, Any], model: Model, annotations: Annotations) -> list[tuple[str, str]]:
    """What the model found: how clear the answers are, who disagrees about what, and what it changes."""
    top = model.label_distributions_.max(axis=1)
    clear, split = float((top >= CLEAR).mean()), float((top < SPLIT).mean())
    held_out = {row["title"]: row for row in content["quality"]["held_out"]}
    own = next((row["score"] for row in held_out.values() if row["own"]), None)
    counts = held_out.get(COUNTS_TITLE, {}).get("score")
    numbers = {
        "n_overturned": content["n_overturned"],
        "overturned": content["n_overturned"] / max(annotations.n_items, 1),
        "ours": None if own is None else math.exp(own),
        "counts": None if counts is None else math.exp(counts),
        "verdicts": content.get("verdicts"),
    }
    return [
        (
            "How clear the answers are",
            sentences.clarity_sentence(clear, split, rivals(model, content["classes"])),
        ),
        ("Who disagrees about what", _cluster_sentence(content)),
        ("What the model changes", sentences.gains_sentence(numbers)),
    ]


def rivals(model: Model, names: Sequence[str]) -> tuple[str, str] | None:
    """The two classes between which most of the disagreement lies: Σ_m of the smaller share."""
    chances = model.label_distributions_
    if chances.shape[1] < 3:
        return None
    first, second = np.argsort(-chances, axis=1, kind="stable")[:, :2].T
    smaller = chances[np.arange(len(chances)), second]
    low, high = np.minimum(first, second), np.maximum(first, second)
    mass = np.bincount(low * chances.shape[1] + high, smaller, minlength=chances.shape[1] ** 2)
    a, b = divmod(int(mass.argmax()), chances.shape[1])
    return names[a], names[b]


def _cluster_sentence(content: dict[str, Any]) -> str:
    clusters, names = content["clusters"], content["classes"]
    if clusters is None:
        return sentences.NO_CLUSTERS
    if clusters["between"] is not None:
        first = clusters["contrasts"][:1]
        where = "".join(_where(one, clusters, content["items"].get("text")) for one in first)
        says = "".join(one["says"] for one in first)
        between, borrowed = clusters["between"], clusters["borrowed"]
        n_idle = sum(group["idle"] for group in clusters["groups"])
        return sentences.groups_sentence(len(clusters["groups"]), n_idle, between, where, says, borrowed)
    if clusters["one_group"]:
        return sentences.one_group_sentence(clusters["borrowed"])
    largest = clusters["items"][:3]
    top = [int(np.argmax(cluster["p"])) for cluster in largest]
    answers = [(names[p], cluster["p"][p] / 1000) for p, cluster in zip(top, largest, strict=True)]
    return sentences.clusters_sentence([cluster["share"] for cluster in largest], answers)


def _where(contrast: dict[str, Any], clusters: dict[str, Any], texts: list[str] | None) -> str:
    """The items of a contrast: by an example where there are texts, or else by what they get."""
    cluster = clusters["items"][contrast["cluster"]]
    quotable = [texts[m] for m in contrast["items"] if len(texts[m].split()) > 2] if texts else []
    return sentences.where_words(quotable[0], cluster["share"]) if quotable else str(cluster["words"])


# ---- the page itself ----------------------------------------------------------------------------------


def page(content: Mapping[str, Any]) -> str:
    """The whole page from its content."""
    style, script = _asset("style.css"), _script()
    places = {
        "policy": _policy(script, style),
        "title": html.escape(str(content["title"])),
        "findings": "\n".join(_finding(*finding) for finding in content["findings"]),
        "style": style,
        "script": script,
        "data": embedded(content),
    }
    # One pass: whatever stands in the data is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], _asset("template.html"))


def _finding(heading: str, sentence: str) -> str:
    return f"<li><h2>{html.escape(heading)}</h2>{html.escape(sentence)}</li>"


def embedded(content: Mapping[str, Any]) -> str:
    """JSON that cannot end the element it stands in: no ``<`` and no ``&`` appears in it."""
    text = json.dumps(finite(dict(content)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def _script() -> str:
    """The parts of the script as one, in a scope of its own."""
    parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}\n}})();\n'


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _asset(name: str) -> str:
    return (files("dissensus.report") / "assets" / name).read_text(encoding="utf-8")

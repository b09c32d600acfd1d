"""The page: one HTML file that needs no network and lets nothing from the data run.

Its content is gathered first, as plain values (``strip.py``, ``items.py``, ``annotators.py``, ``gold.py``,
``clusters.py`` and ``quality.py``, the sections of the page), put into sentences that are true of the raw
labels (``evaluation/sentences.py``), and placed into a template with its style and script (``assets/``). The
data stand in a ``<script type="application/json">`` with every ``<`` escaped, and the script shows them as
text only. A Content-Security-Policy allows this one script and this one style, by their hashes, and nothing
else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from dissensus._version import __version__
from dissensus.annotators.findings import Findings, findings
from dissensus.annotators.verdicts import AnnotatorVerdicts
from dissensus.errors import DataError
from dissensus.evaluate.compare import HeldOut
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Description, describe
from dissensus.labels.sources import as_annotations
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.models.bradley_terry import BradleyTerry
from dissensus.models.ratings import NumericRatings
from dissensus.models.sets import LabelSets
from dissensus.progress import Progress, ShowProgress, shown, silent
from dissensus.report.annotators import (
    annotator_columns,
    column_content,
    heat_content,
    label_rows,
    names,
    page_order,
    views_said,
)
from dissensus.report.clusters import grouping_of, groups_shown, page_groups
from dissensus.report.gold import gold_content
from dissensus.report.items import Projection, item_columns, map_content, overturned, texts_of, true_classes
from dissensus.report.judges import judge_content
from dissensus.report.quality import quality_content, search_content, trace_content
from dissensus.report.ranking import ranking_page
from dissensus.report.ratings import ratings_page
from dissensus.report.sets import sets_page
from dissensus.report.since import changes
from dissensus.report.strip import steps, strip
from dissensus.report.time import time_content
from dissensus.tables.atomic import atomic_path
from dissensus.tables.columns import guess_words
from dissensus.tables.results import finite

MOST_ROWS = 400_000  # labels that a page carries one by one
# A search hides labels by its seed and the numbers after it. Its winner is compared on labels that none of
# these hides: they did not choose it.
FRESH_SPLIT = 1_000
SCRIPTS = ("base", "table", "items", "annotators", "judges", "clusters", "gold", "map", "fitting", "page")


def write_report(
    model: Model,
    annotations: Any,
    path: str | Path,
    *,
    title: str | None = None,
    texts: Sequence[str] | str | None = None,
    anonymise: bool = False,
    held_out: Sequence[HeldOut | Mapping[str, Any]] | None = None,
    verdicts: AnnotatorVerdicts | None = None,
    description: Description | None = None,
    recovery: Any = None,
    selection: Any = None,
    command: str = "",
    projection: Projection = "auto",
    run: str = "",
    since: str | Path | None = None,
    times: Any = None,
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
        Title of the page; if it is left out, the name of the model.
    texts
        The texts of the items, one for each, or the column of the item table that has them. Without either, a
        column called ``text`` (or the like) is taken.
    anonymise
        Numbers in place of annotator ids, in random order; rare values of side columns are lumped together.
    held_out
        Scores on hidden labels that a run already has (``Run.held_out``). None: the model, smoothed counts,
        FMM and Dawid–Skene are compared here, hiding ``test_size`` of the pairs (of a search, by a split of
        its own); an empty sequence leaves it out.
    verdicts, description
        What :func:`dissensus.annotator_verdicts` and :func:`dissensus.describe` said of this model and these
        labels; None: they are asked here.
    recovery
        What :func:`dissensus.recover` gave for this model.
    selection
        What :func:`dissensus.select` gave, or the rows of its table, for the surface over K and L.
    command
        The command that made it, to be shown.
    projection
        Of the map: "pca" or "tsne" (needs openTSNE; slow from some thousand items); "auto" takes the first.
    run
        The directory of the run, for the commands that the page offers.
    since
        The directory of an earlier run: what changed since then stands on the page too.
    times
        When each label was given (seconds, NaN: unknown), in the order of the annotations' rows.
    seed
        Seed of all that is random.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    known = as_annotations(annotations)
    title = title or f"{title_of(model)}: {known.n_items:,} items"
    if isinstance(model, NumericRatings | BradleyTerry | LabelSets):
        check_match(model, known)
        if since is not None or times is not None:
            raise DataError(
                f"the page of {title_of(model)} has no part for since= and times=; leave them out"
            )
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
            run,
            since,
            times,
            verdicts,
            description,
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
    run: str = ""
    since: str | Path | None = None
    times: Any = None
    verdicts: AnnotatorVerdicts | None = None
    description: Description | None = None


def gather(request: Request) -> dict[str, Any]:
    """The page's content, section by section."""
    model, annotations = request.model, request.annotations
    check_match(model, annotations)
    request.progress("looking for groups", 0.0)
    own = grouping_of(model, annotations)
    found = findings(model, annotations, request.verdicts)
    described = request.description or describe(annotations)
    shown, clusters = groups_shown(annotations, own, found.votes, request.seed)
    request.progress("gathering", 0.4)
    order = page_order(annotations, request.anonymise)
    gold = gold_content(model, annotations, request.seed)
    named = _names_in_order(annotations, request.anonymise, order)
    return {
        "title": request.title,
        "version": __version__,
        "command": request.command,
        "run": request.run,
        "model": title_of(model),
        "true_classes": true_classes(model),
        "classes": [str(name) for name in annotations.classes],
        "ordered": annotations.label_type == "ordinal",
        "strip": strip(found, described, gold),
        "steps": steps(found, described, gold, named, clusters),
        "since": None if request.since is None else changes(Path(request.since), found, described, named),
        "data": data_content(described),
        "quality": _quality(request),
        "items": item_columns(found, shown, request.texts),
        "overturned": overturned(found, own),
        "intervals": model.intervals_are,
        "clusters": clusters,
        "gold": gold,
        "map": map_content(model, annotations, shown, request.projection, request.seed),
        "search": search_content(request.selection),
        "trace": trace_content(model),
        "judges": judge_content(annotations, request.anonymise),
        **_people(request, found, page_groups(annotations, shown, clusters), clusters, order),
    }


def _names_in_order(annotations: Annotations, anonymise: bool, order: Any) -> list[str]:
    """The annotators' names as the page has them, by code."""
    shown, found = names(annotations, anonymise), [""] * annotations.n_annotators
    for place, code in enumerate(order):
        found[code] = shown[place]
    return found


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


def data_content(found: Description) -> dict[str, Any]:
    """How much there is of everything."""
    return {
        "n_items": found.n_items,
        "n_annotators": found.n_annotators,
        "n_labels": found.n_labels,
        "per_item": list(vars(found.labels_per_item).values()),
        "class_counts": list(found.class_counts.values()),
        "unanimous": found.unanimous,
        "pairwise": found.pairwise_agreement,
        "consistency": found.self_consistency,
        "n_unlabelled": found.n_unlabelled_items,
        "level": found.level,
        # the page has the columns in its own words, not with the settings of a function
        "notes": [*_columns(found.columns), *(n for n in found.notes if n != guess_words(found.columns, ()))],
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
        # scores that a run has are of the labels that its own seed hides, and rivals are scored on the same
        seed=request.seed + FRESH_SPLIT * (request.selection is not None and request.held_out is None),
        progress=request.progress,
    )


def _people(
    request: Request, found: Findings, group: Any, clusters: dict[str, Any] | None, order: Any
) -> dict[str, Any]:
    """Annotators and single labels; where nobody is named, label counts."""
    annotations = request.annotations
    if annotations.anonymous or annotations.n_labels > MOST_ROWS:
        rows: dict[str, Any] = {"counts": annotations.counts.ravel()}
    else:
        rows = label_rows(annotations, order)
    if found.votes is None:
        return {"annotators": None, "columns": [], "rows": rows, "views": [], "heat": None, "time": None}
    letters = [group["name"] for group in clusters["groups"]] if clusters else []
    time = None if request.times is None else time_content(found, request.times, order)
    return {
        "annotators": annotator_columns(found, group, request.anonymise, order)
        | (time or {}).pop("people", {}),
        "views": [] if found.judged is None else views_said(found.judged),
        "columns": column_content(annotations, found.votes, group, letters, request.anonymise),
        "heat": heat_content(found, group, order),
        "time": time,
        "rows": rows,
    }


# ---- the page itself ----------------------------------------------------------------------------------


def page(content: Mapping[str, Any]) -> str:
    """The whole page from its content."""
    style, script = _asset("style.css"), _script()
    places = {
        "policy": _policy(script, style),
        "title": html.escape(str(content["title"])),
        "strip": "\n".join(_card(card) for card in content["strip"]),
        "steps": "\n".join(_step(step) for step in content["steps"]),
        "style": style,
        "script": script,
        "data": embedded(content),
    }
    # One pass: whatever stands in the data is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], _asset("template.html"))


def _card(card: Mapping[str, Any]) -> str:
    """A card of the strip: every number is a link to the table it counts."""
    numbers = "".join(
        f'<a class="value" href="#{one["table"]}" data-preset="{one["preset"]}">{html.escape(one["value"])}'
        + (f'<span class="what">{html.escape(one["what"])}</span>' if one["what"] else "")
        + "</a>"
        for one in card["numbers"]
    )
    title, words = html.escape(card["title"]), html.escape(card["words"])
    return f'<li><h2>{title}</h2><div class="numbers">{numbers}</div><p>{words}</p></li>'


def _step(step: Mapping[str, Any]) -> str:
    """One next step, with a link to what it speaks of."""
    link = ""
    if step["table"]:
        link = f' <a href="#{step["table"]}" data-preset="{step["preset"]}">{html.escape(step["link"])}</a>'
    head, rest = _headed(step["says"])
    return f"<li><strong>{html.escape(head)}</strong>{html.escape(rest)}{link}</li>"


def _headed(text: str) -> tuple[str, str]:
    """The first words of a step, up to its first colon or full stop, and the rest."""
    end = re.search(r"[:.](?= )", text)
    return (text[: end.end()], text[end.end() :]) if end else (text, "")


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

"""The page: one HTML file that needs no network and lets nothing from the data run.

The data stand in a ``<script type="application/json">`` with every ``<`` escaped, and the script shows them
as text only. A Content-Security-Policy allows this one script and this one style, by their hashes, and
nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.execution.progress import ShowProgress, shown
from dissensus.io.atomic import atomic_path
from dissensus.io.results import finite
from dissensus.models import title_of
from dissensus.models.base import Model, as_annotations
from dissensus.report.content import Request, gather
from dissensus.report.items import texts_of
from dissensus.report.places import Projection
from dissensus.selection.compare import HeldOut

SCRIPTS = ("base", "table", "items", "annotators", "clusters", "map", "fitting", "page")


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
    with shown(progress) as tell, atomic_path(path) as temporary:
        request = Request(
            model,
            known,
            title or f"{title_of(model)}: {known.n_items:,} items",
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

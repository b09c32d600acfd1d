"""The page: one HTML file that needs no network and lets nothing from the data run.

Its content is gathered first, as plain values (``summary_cards.py``, ``items.py``, ``annotators.py``,
``clusters.py`` and ``quality.py``, the sections of the page), put into sentences that are true of the raw
labels (``annotators/sentences.py``), and placed into a template with its style and script (``assets/``). The
data stand in a ``<script type="application/json">`` with every ``<`` escaped, and the script shows them as
text only. A Content-Security-Policy allows this one script and this one style, by their hashes, and nothing
else. Answers that are no classes have sections without a script (``static_page.py``) in the same template.
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
from typing import Any, cast

from dissensus._version import __version__
from dissensus.annotators.findings import findings
from dissensus.annotators.verdicts import AnnotatorVerdicts
from dissensus.errors import DataError, setting
from dissensus.evaluate.compare import HeldOut
from dissensus.labels.description import Description, describe
from dissensus.labels.sources import as_annotations
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.progress import ShowProgress, shown
from dissensus.report.annotators import judge_content, page_order, people_content
from dissensus.report.clusters import grouping_of, groups_shown
from dissensus.report.items import item_columns, map_content, overturned, texts_of
from dissensus.report.quality import gold_content, held_out_table, search_content, trace_content, worth
from dissensus.report.summary_cards import changes, steps, summary_cards
from dissensus.tables.atomic import atomic_path
from dissensus.tables.columns import guess_words
from dissensus.tables.results import finite

# A search hides labels by its seed and the numbers after it. Its winner is compared on labels that none of
# these hides: they did not choose it.
FRESH_SPLIT = 1_000
SCRIPTS = ("base", "table", "items", "annotators", "judges", "clusters", "gold", "map", "fitting", "page")


def write_report(
    labels: Any,
    model: Model,
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
    run: str = "",
    since: str | Path | None = None,
    times: Any = None,
    test_size: float = 0.2,
    seed: int = 0,
    progress: ShowProgress = None,
) -> list[str]:
    """Write a fitted model and the labels it was fitted to as one self-contained HTML page.

    Returns the sentences at its head: what is wrong with the labels, and what to do next.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model fitted to these labels.
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
    annotations = as_annotations(labels)
    if texts is None or isinstance(texts, str):
        texts = texts_of(annotations, texts)
    elif len(texts) != annotations.n_items:
        raise DataError(f"{len(texts)} texts were given for {annotations.n_items} items; give one an item")
    model.check_labels(annotations)
    content: dict[str, Any] = {
        "title": title or f"{title_of(model)}: {annotations.n_items:,} items",
        "version": __version__,
        "command": command,
    }
    with shown(progress) as tell, atomic_path(path) as temporary:
        if not model.answers_are_classes:
            from dissensus.report.static_page import static_sections

            if since is not None or times is not None:
                raise DataError(
                    f"the page of {title_of(model)} has no part for {setting('since')} and "
                    f"{setting('times')}; leave them out"
                )
            content["sections"] = static_sections(cast(Any, model), annotations, held_out, anonymise)
            temporary.write_text(page(content), encoding="utf-8", errors="replace")
            return []
        tell("looking for groups", 0.0)
        own = grouping_of(model, annotations)
        found = findings(model, annotations, verdicts)
        described = description or describe(annotations)
        grouping, clusters, group = groups_shown(annotations, own, found.votes, seed)
        tell("gathering", 0.4)
        order, named = page_order(annotations, anonymise)
        gold = gold_content(model, annotations, seed)
        people = people_content(found, group, clusters, order, named, anonymise, times)
        tell("comparing on hidden labels", 0.5)
        # scores that a run has are of the labels that its own seed hides, and rivals are scored on the same
        split = seed + FRESH_SPLIT * (selection is not None and held_out is None)
        content |= {
            "run": run,
            "model": title_of(model),
            "true_classes": getattr(model, "estimate", None) == "truth",  # not what the population would say
            "classes": [str(name) for name in annotations.classes],
            "ordered": annotations.label_type == "ordinal",
            "strip": summary_cards(found, described, gold),
            "steps": steps(found, described, gold, named, clusters),
            "since": None if since is None else changes(Path(since), found, described, named),
            "data": data_content(described),
            "quality": {
                "held_out": held_out_table(model, annotations, held_out, test_size, split),
                "worth": None if recovery is None else worth(model, recovery),
            },
            "items": item_columns(found, grouping, None if texts is None else [str(text) for text in texts]),
            "overturned": overturned(found, own),
            "intervals": model.intervals_are,
            "clusters": clusters,
            "gold": gold,
            "map": map_content(model, annotations, grouping),
            "search": search_content(selection),
            "trace": trace_content(model),
            "judges": judge_content(annotations, anonymise),
            **people,
        }
        temporary.write_text(page(content), encoding="utf-8", errors="replace")
    return [str(step["says"]) for step in content["steps"]]


# ---- its content: plain values, no HTML ---------------------------------------------------------------


def data_content(found: Description) -> dict[str, Any]:
    """Numbers of items, annotators and labels, and what is to be said of the file."""
    read = ", ".join(f"{role} from {name}" for role, name in found.columns.items())
    # the page has the columns in its own words, not with the settings of a function
    notes = [note for note in found.notes if note != guess_words(found.columns, ())]
    return {
        **{name: getattr(found, name) for name in ("n_items", "n_annotators", "n_labels")},
        "per_item": list(vars(found.labels_per_item).values()),
        "class_counts": list(found.class_counts.values()),
        "unanimous": found.unanimous,
        "pairwise": found.pairwise_agreement,
        "consistency": found.self_consistency,
        "n_unlabelled": found.n_unlabelled_items,
        "level": found.level,
        "notes": [f"Read {read}.", *notes] if read else notes,
    }


# ---- the page itself ----------------------------------------------------------------------------------


def page(content: Mapping[str, Any]) -> str:
    """Fill the template; without a script where the content has static sections."""
    style, script, made = _asset("style.css"), "", f"Made by dissensus {content['version']}"
    if "sections" in content:
        made += f" with <code>{html.escape(content['command'])}</code>" if content["command"] else ""
    else:
        parts = "\n".join(_asset(f"{name}.js") for name in SCRIPTS)
        script = f'(() => {{\n"use strict";\n{parts}\n}})();\n'
    optional = re.compile(r"<!-- script -->\n(.*?)<!-- end -->\n", re.DOTALL)
    template = optional.sub(r"\1" if script else "", _asset("template.html"))
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    allowed = f"script-src 'sha256-{hashes[0]}'; " if script else ""
    places = {
        "policy": f"default-src 'none'; {allowed}style-src 'sha256-{hashes[1]}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape(str(content["title"])),
        "strip": "\n".join(_card(card) for card in content.get("strip", ())),
        "steps": "\n".join(_step(step) for step in content.get("steps", ())),
        "sections": "\n".join(section.html() for section in content.get("sections", ())),
        "footer": f"{made}. This page is one file: it loads nothing and sends nothing.",
        "style": style,
        "script": script,
        "data": embedded(content) if script else "",
    }
    # One pass: whatever stands in the data is not looked at again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: places[place[1]], template)


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
    """One next step, its first words set off, with a link to what it speaks of."""
    says, link = step["says"], ""
    if step["table"]:
        link = f' <a href="#{step["table"]}" data-preset="{step["preset"]}">{html.escape(step["link"])}</a>'
    colon = re.search(r"[:.](?= )", says)
    end = colon.end() if colon else len(says)
    return f"<li><strong>{html.escape(says[:end])}</strong>{html.escape(says[end:])}{link}</li>"


def embedded(content: Mapping[str, Any]) -> str:
    """JSON that cannot end the element it stands in: no ``<`` and no ``&`` appears in it."""
    text = json.dumps(finite(dict(content)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026").replace("\u2028", "\\u2028")


def _asset(name: str) -> str:
    return (files("dissensus.report") / "assets" / name).read_text(encoding="utf-8")

"""Report page: one HTML file that needs no network and runs nothing from the data.

The content is collected first as plain values (``summary_cards.py``, ``items.py``, ``annotators.py``,
``clusters.py`` and ``quality.py``), with sentences that are true of the raw labels
(``annotators/sentences.py``), and placed into a template with its style and script (``assets/``). The data
are in a ``<script type="application/json">`` with every ``<`` escaped, and the script displays them as text
only. A Content-Security-Policy allows this script and this style, by their hashes, and nothing else. Answers
that are not classes have sections without a script (``static_page.py``) in the same template.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from dissensus._version import __version__
from dissensus.annotators.plan import collect_findings
from dissensus.annotators.pseudonyms import without_ids, without_words
from dissensus.annotators.verdicts import AnnotatorVerdicts
from dissensus.errors import DataError, setting
from dissensus.evaluate.compare import HeldOut
from dissensus.judges.report import JudgeReport
from dissensus.labels import as_annotations
from dissensus.labels.agreement import item_groups, pair_sums
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import Description, describe
from dissensus.labels.features import texts_of
from dissensus.models import display_name, title_of
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.progress import ShowProgress, shown
from dissensus.report import Content, asset, fill, joined_script, quality, source_hash
from dissensus.report.annotators import page_order, people_content
from dissensus.report.clusters import cluster_content, grouping_of
from dissensus.report.items import item_columns, overturned
from dissensus.report.judges import judge_page, judges_of_run
from dissensus.report.summary_cards import changes, steps, summary_cards
from dissensus.tables.atomic import atomic_path
from dissensus.tables.columns import guess_note
from dissensus.tables.results import json_safe

SCRIPTS = (
    "dom", "base", "table", "text", "items", "annotators", "judges", "clusters", "gold", "fitting", "page",
)  # fmt: skip
JUDGE_SCRIPTS = ("dom", "base", "judges", "judge_page")


def write_report(
    labels: Any,
    model: Model,
    path: str | Path,
    *,
    title: str | None = None,
    anonymise: bool = False,
    held_out: Sequence[HeldOut | Mapping[str, Any]] = (),
    verdicts: AnnotatorVerdicts | None = None,
    description: Description | None = None,
    selection: Any = None,
    command: str = "",
    run: str = "",
    since: str | Path | None = None,
    seed: int = 0,
    progress: ShowProgress = None,
) -> list[str]:
    """Write a fitted model and the labels it was fitted to as one self-contained HTML page.

    Returns the sentences on problems and next steps at the top of the page.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model fitted to these labels.
    path
        The file to write.
    title
        Title of the page; None: the numbers of labels and items.
    anonymise
        Show numbers in place of annotator ids, in random order, and pool rare values of annotator columns.
    held_out
        Scores of models on hidden labels (the ``table`` of :func:`dissensus.compare`).
    verdicts, description
        Results of :func:`dissensus.annotator_verdicts` and :func:`dissensus.describe` for this model and
        these labels; None: computed here.
    selection
        Result of :func:`dissensus.select`, or the rows of its table, for the scores over K and L.
    command
        Command that produced the run, to be displayed.
    run
        Directory of the run, for the commands on the page.
    since
        Directory of an earlier run, to report changes since then.
    seed
        Seed of the random numbers.
    progress
        True or False, a function called with (task, share done), or None: a bar on a terminal.
    """
    annotations = as_annotations(labels)
    model.check_labels(annotations)
    title = title or f"{annotations.n_labels:,} labels on {annotations.n_items:,} items"
    content: Content = {"title": title, "version": __version__, "command": command}
    with shown(progress) as tell, atomic_path(path) as temporary:
        if not model.answers_are_classes:
            from dissensus.report.static_page import static_sections

            if since is not None:
                unsupported = f"the page of {title_of(model)} does not support {setting('since')}"
                raise DataError(f"{unsupported}; leave it out")
            content["sections"] = static_sections(cast(Any, model), annotations, held_out, anonymise)
            temporary.write_text(page(content), encoding="utf-8", errors="replace")
            return []
        tell("looking for groups", 0.0)
        model_grouping = grouping_of(model, annotations)
        findings = collect_findings(model, annotations, verdicts)
        described = description or describe(annotations)
        if anonymise:
            ids = [str(name) for name in annotations.annotators]
            columns, notes = without_ids(described.columns, described.notes, ids)
            described = replace(described, columns=columns, notes=notes)
            content["command"] = without_words(command, ids)
        clusters = cluster_content(findings, model_grouping)
        tell("collecting the tables", 0.4)
        order, names = page_order(annotations, anonymise)
        gold = quality.gold_content(model, annotations, seed)
        people = people_content(findings, order, names, anonymise)
        content |= {
            "run": run,
            "model": display_name(model).split(" (")[0],
            "true_classes": getattr(model, "estimate", None) == "truth",
            "classes": [str(name) for name in annotations.classes],
            "ordered": annotations.label_type == "ordinal",
            "strip": summary_cards(findings, described, gold),
            "steps": steps(findings, described, gold, names),
            "since": None if since is None else changes(Path(since), findings, described, names),
            "data": data_content(described) | {"confused": confused_classes(annotations)},
            "held_out": quality.held_out_table(model, held_out),
            "items": item_columns(findings, model_grouping, texts_of(annotations)),
            "overturned": overturned(findings, model_grouping),
            "intervals": model.intervals_are,
            "clusters": clusters,
            "gold": gold,
            "search": quality.search_content(selection),
            "trace": quality.trace_content(model),
            "judges": judges_of_run(annotations, names),
            **people,
        }
        temporary.write_text(page(content), encoding="utf-8", errors="replace")
    return [str(step["says"]) for step in content["steps"]]


def write_judge_page(report: JudgeReport, path: str | Path, title: str, command: str = "") -> None:
    """Write a comparison of judges with humans as one self-contained HTML page."""
    content = judge_page(report) | {"title": title, "version": __version__, "command": command}
    with atomic_path(path) as temporary:
        temporary.write_text(page(content, JUDGE_SCRIPTS), encoding="utf-8", errors="replace")


# ---- content ------------------------------------------------------------------------------------------


def data_content(described: Description) -> Content:
    """Return the numbers of items, annotators and labels, and notes on the file."""
    read = ", ".join(f"{role} from ‘{name}’" for role, name in described.columns.items())
    # the note on columns is replaced by a sentence without function arguments
    notes = [note for note in described.notes if note != guess_note(described.columns, ())]
    plain = ("n_items", "n_annotators", "n_labels", "unanimous", "level")
    return {
        **{name: getattr(described, name) for name in plain},
        "per_item": list(vars(described.labels_per_item).values()),
        "class_counts": list(described.class_counts.values()),
        "pairwise": described.pairwise_agreement,
        "consistency": described.self_consistency,
        "n_unlabelled": described.n_unlabelled_items,
        "notes": [f"Columns read: {read}.", *notes] if read else notes,
    }


def confused_classes(annotations: Annotations) -> Array | None:
    """Return (classes, classes) pairs of labels of one item by their classes; None for two classes."""
    if annotations.n_classes < 3:
        return None
    groups = item_groups(np.diff(annotations.item_pointers), annotations.n_classes**2)
    pairs = pair_sums(annotations.counts, *groups, by_label=True, table=True)
    return np.asarray(pairs.agreed.sum(axis=0).round(3))


# ---- HTML ---------------------------------------------------------------------------------------------


def page(content: Mapping[str, Any], scripts: Sequence[str] = SCRIPTS) -> str:
    """Fill the template, without the script for static sections."""
    style, script, made = asset("style.css"), "", f"Made by dissensus {content['version']}"
    if "sections" in content:
        made += f" with <code>{html.escape(content['command'])}</code>" if content["command"] else ""
    else:
        script = joined_script(asset(f"{name}.js") for name in scripts)
    optional = re.compile(r"<!-- script -->\n(.*?)<!-- end -->\n", re.DOTALL)
    template = optional.sub(r"\1" if script else "", asset("template.html"))
    allowed = f"script-src {source_hash(script)}; " if script else ""
    fields = {
        "policy": f"default-src 'none'; {allowed}style-src {source_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "title": html.escape(str(content["title"])),
        "strip": "\n".join(_card(card) for card in content.get("strip", ())),
        "steps": "\n".join(_step(step) for step in content.get("steps", ())),
        "sections": "\n".join(section.html() for section in content.get("sections", ())),
        "footer": f"{made}. This page is a single file that neither loads nor sends anything.",
        "style": style,
        "script": script,
        "data": embedded(content) if script else "",
    }
    return fill(template, fields)


def _card(card: Mapping[str, Any]) -> str:
    """Return a card in which every number links to the table it counts."""
    numbers = "".join(
        f'<a class="value" href="#{row["table"]}" data-preset="{row["preset"]}">{html.escape(row["value"])}'
        + (f'<span class="what">{html.escape(row["what"])}</span>' if row["what"] else "")
        + "</a>"
        for row in card["numbers"]
    )
    title, words = html.escape(card["title"]), html.escape(card["words"])
    scale = _scale(*card["scale"]) if card.get("scale") else ""
    return f'<li><h2>{title}</h2><div class="numbers">{numbers}</div>{scale}<p>{words}</p></li>'


def _scale(value: float, low: float, high: float) -> str:
    """Return a line from 0 to 1 with marks at 0.667 and 0.8, and a dot with its interval."""
    left, dot, right = (f"{100 * min(max(x, 0.0), 1.0):.1f}" for x in (low, value, high))
    marks = "".join(f'<line x1="{x}" x2="{x}" y1="1" y2="9" class="axis"/>' for x in (0, 66.7, 80, 100))
    label = f"{value:.2f} on a scale from 0 to 1; 95 % interval {low:.2f} to {high:.2f}"
    return (
        f'<svg viewBox="-4 0 108 10" class="scale" role="img" aria-label="{label}">'
        f'<line x1="0" x2="100" y1="5" y2="5" class="axis"/>{marks}'
        f'<line x1="{left}" x2="{right}" y1="5" y2="5" class="reach"/><circle cx="{dot}" cy="5" r="3"/></svg>'
    )


def _step(step: Mapping[str, Any]) -> str:
    """Return one step with its first clause in bold and a link to its subject."""
    says, link = step["says"], ""
    if step["table"]:
        link = f' <a href="#{step["table"]}" data-preset="{step["preset"]}">{html.escape(step["link"])}</a>'
    colon = re.search(r"[:.](?= )", says)
    end = colon.end() if colon else len(says)
    return f"<li><strong>{html.escape(says[:end])}</strong>{html.escape(says[end:])}{link}</li>"


def embedded(content: Mapping[str, Any]) -> str:
    """Return JSON without ``<`` and ``&``, so that it cannot end its HTML element."""
    text = json.dumps(json_safe(dict(content)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("&", "\\u0026").replace("\u2028", "\\u2028")

"""Judges on the page of a run, if a column names them, and on a page of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dissensus.annotators import sentences
from dissensus.annotators.judge_detection import KIND_COLUMN, are_models
from dissensus.annotators.sentences import count
from dissensus.judges.kappa import human_kappa, human_kappas
from dissensus.judges.report import JudgeReport, judge_report
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import texts_of
from dissensus.labels.vocabulary import Vocabulary
from dissensus.report import Content
from dissensus.report.summary_cards import top_card

MAX_HUMANS = 30  # on the axis of agreement
MAX_CONFUSED = 20  # classes of a confusion matrix


def judges_of_run(annotations: Annotations, names: Sequence[str]) -> Content | None:
    """Return the comparison of judges with humans; None if the annotator table names no judges.

    ``names`` are those of the annotators on the page, by code.
    """
    table = annotations.annotator_table
    if table is None or KIND_COLUMN not in table.column_names or not are_models(annotations).any():
        return None
    named = replace(annotations, annotator_vocabulary=Vocabulary(names, "annotator"))
    report = judge_report(named, KIND_COLUMN)
    return judge_content(report) if report.n_humans else None


def judge_content(report: JudgeReport) -> Content:
    """Return the comparison, with tables of the most frequent classes, and humans beside the judges."""
    answers, content = report.answers, report.to_dict()
    names = answers.annotations.annotators
    used = np.sort(np.argsort(-answers.annotations.class_counts, kind="stable")[:MAX_CONFUSED])
    square = np.ix_(used, used)
    axis = [(name, "judge", *kappa) for name, kappa in zip(report.judges, report.kappas, strict=True)]
    axis += [(str(names[n]), "human", *kappa) for n, kappa in human_kappas(answers, MAX_HUMANS)]
    del content["baseline"]
    return content | {
        "says": sentences.judges_sentence(report.judges, content["judges"], report.epsilon),
        "terms": sentences.describe_test(report.epsilon, answers.values is None),
        "weighted": answers.values is not None,
        "axis": axis,
        "human": human_kappa(answers, answers.human_counts),
        "used": used if content["confusion"] else [],
        "confusion": [part.confusion[square].round(4) for part in report.differences],
        "among_humans": [part.among_humans[square].round(4) for part in report.differences],
    }


def judge_page(report: JudgeReport) -> Content:
    """Return the content of a page of its own: cards, one sentence per judge, and the comparison."""
    labels, k, content = report.answers.annotations, len(report.judges), judge_content(report)
    wrong = {row["item"] for row in content["wrong_items"]}
    items, texts = [m for m, item in enumerate(labels.items.tolist()) if item in wrong], texts_of(labels)
    replacing = sum(row["verdict"] == "replaces" for row in content["judges"])
    value, low, high, _ = content["human"]
    figures = [("Judges that can replace a human", f"{replacing} of {k}", "judges", "Of those compared")]
    words = f"95\u00a0% interval {low:.2f} to {high:.2f}" if low == low else "Too few labels for an interval"
    kappa = f"{value:.2f}" if value == value else "–"
    figures.append(("κ of a human with the others", kappa, "agreement", words))
    steps = [row["words"] for row in content["drifts"]]
    for row in content["judges"]:
        bias = f" Bias: {row['biases']}." if row["biases"] else ""
        steps.append(f"{row['judge']}: {row['verdict'] or 'no verdict'}; {row['settled_by']}.{bias}")
    steps += report.notes
    sizes = count(report.n_humans, "human"), count(labels.n_labels, "label"), count(labels.n_items, "item")
    return {
        "strip": [top_card(title, [(figure, to, "", "")], words) for title, figure, to, words in figures],
        "steps": [{"says": text, "table": ""} for text in steps],
        "classes": [str(name) for name in labels.classes],
        "ordered": labels.label_type == "ordinal",
        "items": {"id": [str(labels.items[m]) for m in items], "text": texts and [texts[m] for m in items]},
        "clusters": {"groups": []},
        "amounts": f"{count(k, 'judge')} ({report.found_by}), {', '.join(sizes)}",
        "judges": content,
    }

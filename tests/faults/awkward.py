"""Awkward tables as users have them, each with the columns that a person would read.

Every table states by hand which columns hold the items, the annotators and the labels, or that the
table leaves it open, so that the reader must ask. A table ends in one of these ways:

right    read as stated, in silence or with a note (where the table says "told", with a note on that word)
asked    refused in one line that says what to do
noted    read in another way than stated, with a note on what was read
wrong    read in another way than stated, without a note: a fault

    python -m tests.faults.awkward      read them all
"""

import csv
import io
import json
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd

import dissensus as ds

Rows = list[tuple[str, ...]]


@dataclass(frozen=True)
class Awkward:
    """A table, the labels to be read from it (None: the table leaves it open), and what must be told."""

    name: str
    content: Any  # text, bytes or a data frame
    labels: Counter[tuple[str, ...]] | None
    told: str = ""
    suffix: str = ".csv"
    options: dict[str, Any] = field(default_factory=dict)


# ---- cells: 24 items with three answers each, of six annotators ----------------------------------------

PLACES = ["harbour", "museum", "station", "bakery", "library", "garden"]
NAMES = ["Ana", "Ben", "Cleo", "Dan", "Eva", "Finn"]


def text(item: int) -> str:
    return f"the {PLACES[item % 6]} was closed on day {item} of our trip"


def pick(n: int, *values: str) -> str:
    """Return one of the values, in an order without a pattern."""
    return values[(n * n * 7 + n * 5 + n // 7) % len(values)]


def person(n: int) -> int:
    return (n // 3 + n % 3) % 6


def answer(n: int) -> str:
    return ("no", "yes")[(n // 3 + (n * 5 % 7 == 0)) % 2]


# kind of column -> cell of row n, in a table of 72 rows
LONG: dict[str, Callable[[int], str]] = {
    "row": lambda n: str(n),
    "row id": lambda n: f"A{n * 7919 % 100003:05d}",
    "item": lambda n: f"t{n // 3:02d}",
    "item number": lambda n: str(n // 3 + 1),
    "text": lambda n: text(n // 3),
    "short text": lambda n: f"{PLACES[n // 3 % 6]} {n // 3}",
    "person": lambda n: f"w{person(n)}",
    "person number": lambda n: str(person(n) + 1),
    "name": lambda n: NAMES[person(n)],
    "mail": lambda n: f"{NAMES[person(n)].lower()}@example.org",
    "team": lambda n: f"vendor {person(n) % 2}",
    "age": lambda n: str(20 + 3 * person(n)),
    "expert": lambda n: str(person(n) % 2),
    "session": lambda n: f"s{person(n)}",
    "label": answer,
    "tone": lambda n: pick(n, "calm", "angry"),
    "stars": lambda n: pick(n, *"12345"),
    "agree": lambda n: pick(n, "disagree", "neutral", "agree"),
    "true": lambda n: pick(n, "TRUE", "FALSE"),
    "flag": lambda n: pick(n + 3, "0", "1"),
    "flag 2": lambda n: pick(n + 5, "0", "0", "1"),
    "year": lambda n: pick(n, "2021", "2022", "2023"),
    "date": lambda n: pick(n, "2024-01-31", "2024-02-29"),
    "several": lambda n: pick(n, "joy;anger", "joy", "anger;fear", "fear", "joy;fear"),
    "list": lambda n: pick(n, '["joy", "fear"]', '["joy"]', '["fear"]'),
    "object": lambda n: json.dumps({"label": answer(n)}),
    "decimal": lambda n: f"{1 + n * 37 % 40 / 10:.1f}".replace(".", ","),
    "slider": lambda n: str(n * 37 % 101),
    "gold": lambda n: ("no", "yes")[n // 3 % 2],
    "mean": lambda n: f"{(n // 3 * 17 % 50) / 10}",
    "topic": lambda n: pick(n // 3, "sport", "news", "art"),
    "author": lambda n: f"u{n // 6}",
    "language": lambda n: ("de", "en")[n // 3 % 2],
    "batch": lambda n: str(n // 18 + 1),
    "in batch": lambda n: str(n // 3 % 6 + 1),
    "time": lambda n: f"2024-03-{1 + n // 3:02d}T10:{n % 60:02d}:00",
    "seconds": lambda n: str((50 + n * 37 % 400) / 10),
    "sure": lambda n: str((50 + n * 13 % 50) / 100),
    "sure 5": lambda n: pick(n + 2, *"12345"),
    "remark": lambda n: "" if n % 4 == 0 else f"because of reason number {n}",
    "explained": lambda n: f"because of reason number {n}",
    "constant": lambda n: "submitted",
    "question": lambda n: "Is this comment rude to anybody?",
    "blank": lambda n: "",
    "three": lambda n: "3",
    "number of raters": lambda n: str(3 + n // 3 % 3),
    "language model": lambda n: ("gpt", "llama")[n // 3 % 2],
    # 8 items of three parts (aspects, sentences, turns, answers of models), with three answers each
    "whole": lambda n: f"d{n // 9}",
    "part": lambda n: f"d{n // 9}-{n // 3 % 3}",
    "part number": lambda n: str(n // 3 % 3 + 1),
    "aspect": lambda n: ("food", "service", "price")[n // 3 % 3],
    "model": lambda n: ("gpt", "llama", "qwen")[n // 3 % 3],
    "reply": lambda n: f"the reply to question {n // 9} by model {n // 3 % 3}",
    "one of 3": lambda n: f"w{n % 3}",
    # 12 items that three annotators label twice
    "twice": lambda n: f"t{n // 6}",
    "round": lambda n: str(n % 2 + 1),
    "again": lambda n: f"w{n // 2 % 3}",
    # counts: 36 items with two classes
    "half": lambda n: f"t{n // 2}",
    "class": lambda n: ("no", "yes")[n % 2],
    "count": lambda n: str(1 + n * 5 % 7),
    "single": lambda n: f"t{n}",
}


def rated(n: int, person: int, *values: str) -> str:
    return "" if (n + person) % 4 == 0 else pick(n * 3 + person * 5, *values)


# kind of column -> cell of row n, in a table of 24 rows with a column for each annotator
WIDE: dict[str, Callable[[int], str]] = {
    **{f"yes {k}": lambda n, k=k: rated(n, k, "yes", "no") for k in range(1, 7)},  # type: ignore[misc]
    **{f"stars {k}": lambda n, k=k: rated(n, k, *"12345") for k in range(1, 7)},  # type: ignore[misc]
    **{name: lambda n, cell=cell: cell(3 * n) for name, cell in LONG.items()},  # type: ignore[misc]
    "row": lambda n: str(n),
    "agreement": lambda n: pick(n, "0.67", "1.0", "0.33"),
    "hard": lambda n: pick(n, "easy", "hard"),
    "short remark": lambda n: pick(n, "", "", "hm", "why?"),
    "n yes": lambda n: str(n * 5 % 4),
    "n no": lambda n: str(3 - n * 5 % 4),
    "percent": lambda n: str(n * 37 % 101),
    "rest": lambda n: str(100 - n * 37 % 101),
}


def cells(spec: str, kinds: dict[str, Callable[[int], str]], n_rows: int) -> dict[str, list[str]]:
    """Return the columns of ``header: kind; header: kind``."""
    pairs = [part.rpartition(":") for part in spec.split(";")]
    return {name.strip(): [kinds[kind.strip()](n) for n in range(n_rows)] for name, _, kind in pairs}


def as_text(columns: dict[str, list[str]], separator: str = ",", end: str = "\n") -> str:
    target = io.StringIO(newline="")
    rows = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    csv.writer(target, delimiter=separator, lineterminator=end).writerows(rows)
    return target.getvalue()


def long(name: str, spec: str, reads: str | None, told: str = "", **options: Any) -> Awkward:
    """Return a table of one row per label; ``reads`` are its columns of items, annotators and labels."""
    columns = cells(spec, LONG, 72)
    labels = None
    if reads is not None:
        names = [header.strip() for header in reads.split(",")]
        rows = zip(*map(columns.__getitem__, names), strict=True)
        if len(names) > 3:  # columns of 0 and 1: the label is the set of those that are 1
            tags = sorted(names[2:])
            rows = (  # type: ignore[assignment]
                (*row[:2], json.dumps([tag for tag in tags if row[names.index(tag)] == "1"])) for row in rows
            )
        labels = Counter(row for row in rows if row[2])
    return Awkward(name, as_text(columns), labels, told, options=options)


def wide(name: str, spec: str, reads: str | None, told: str = "", **options: Any) -> Awkward:
    """Return a table of one row per item; ``reads`` are its columns of items, and of every annotator."""
    columns = cells(spec, WIDE, 24)
    labels = None
    if reads is not None:
        item, *people = (header.strip() for header in reads.split(","))
        labels = Counter(
            (row, who, label)
            for who in people
            for row, label in zip(columns[item], columns[who], strict=True)
            if label
        )
    return Awkward(name, as_text(columns), labels, told, options=options)


def raw(name: str, content: Any, labels: str | None, told: str = "", suffix: str = ".csv") -> Awkward:
    """Return a table as it is written; ``labels`` are the words of its items, annotators and labels."""
    words = None if labels is None else [tuple(row.split()) for row in labels.split(",")]
    return Awkward(name, content, None if words is None else Counter(words), told, suffix)


def workbook(fill: Callable[[Any], None]) -> bytes:
    book = openpyxl.Workbook()
    fill(book)
    target = io.BytesIO()
    book.save(target)
    return target.getvalue()


PLAIN = "item: item; annotator: person; label: label"
READ = "item, annotator, label"
PLAIN_TEXT = as_text(cells(PLAIN, LONG, 72))
PLAIN_LABELS = long("", PLAIN, READ).labels
RATERS = "rater_1: yes 1; rater_2: yes 2; rater_3: yes 3"
PEOPLE = "Ana: yes 1; Ben: yes 2; Cleo: yes 3"
ABC = "a x yes,a y no,b x yes,b y yes"

LONG_TABLES = [
    # ids of rows, indices
    long(
        "id of the row beside a task",
        "id: row; task: item; worker: person; answer: label",
        "task, worker, answer",
    ),
    long("id of the row beside texts", "id: row; text: text; annotator: person; label: label", None),
    long("id of the row beside sentences", "idx: row; sentence: text; user: person; label: label", None),
    long(
        "id of the row beside texts of another name",
        "id: row; passage: text; annotator: person; label: label",
        None,
    ),
    long(
        "id of the row beside short texts",
        "id: row; query: short text; annotator: person; label: label",
        None,
    ),
    long(
        "item id of the row beside a question",
        "item: row id; question: text; worker: person; answer: label",
        None,
    ),
    long("index of pandas", f"Unnamed: 0: row; {PLAIN}", READ),
    long("index without a name", f": row; {PLAIN}", READ),
    long("two indices of pandas", f"Unnamed: 0: row; Unnamed: 0.1: row; {PLAIN}", READ),
    long(
        "column called index",
        "index: row; item_id: item; worker_id: person; label: label",
        "item_id, worker_id, label",
    ),
    long("number of the row", "row: row; item: item; rater: person; rating: stars", "item, rater, rating"),
    long(
        "assignments",
        "assignment_id: row id; hit_id: item; worker_id: person; answer: label",
        "hit_id, worker_id, answer",
    ),
    long(
        "ids of annotations",
        "annotation_id: row id; item: item; annotator: person; annotation: label",
        "item, annotator, annotation",
    ),
    long("ids of labels", "label_id: row id; item: item; annotator: person; label: label", READ),
    long(
        "answers with ids",
        "response_id: row id; question_id: item; participant: person; response: label",
        "question_id, participant, response",
    ),
    # times, certainty, remarks, people
    long("timestamps", f"{PLAIN}; created_at: time; updated_at: time", READ),
    long("timestamp first", f"timestamp: time; {PLAIN}", READ),
    long("durations", f"{PLAIN}; duration: seconds; lead_time: seconds", READ),
    long("certainty in five steps", f"{PLAIN}; confidence: sure 5", READ),
    long("certainty called score", "item: item; annotator: person; score: sure; label: label", READ),
    long(
        "certainty called score beside a vote",
        "item: item; annotator: person; score: sure; vote: label",
        "item, annotator, vote",
    ),
    long("remarks", f"{PLAIN}; comments: remark", READ),
    long("remarks called response", "item: item; annotator: person; label: label; response: remark", READ),
    long(
        "remarks called answer beside a rating",
        "item: item; annotator: person; answer: explained; rating: stars",
        "item, annotator, rating",
    ),
    long("a blank column", f"{PLAIN}; note: blank; : blank", READ),
    long("constant status", f"{PLAIN}; status: constant", READ),
    long("e-mail addresses", "item: item; annotator: mail; label: label", READ),
    long(
        "ids and names of annotators",
        "task: item; worker_id: person; worker_name: name; label: label",
        "task, worker_id, label",
    ),
    long("ids and attributes", "annotator: person; age: age; team: team; item: item; label: label", READ),
    long(
        "teams called annotator",
        "item: item; annotator: team; worker: person; label: label",
        "item, worker, label",
    ),
    long(
        "a constant annotator beside workers",
        "item: item; annotator: constant; worker: person; label: label",
        "item, worker, label",
    ),
    long("two ids of the same people", "item: item; user: person; participant: session; label: label", None),
    long("sessions", f"{PLAIN}; session_id: session", READ),
    long(
        "numbers as ids",
        "item_id: item number; annotator_id: person number; label: stars",
        "item_id, annotator_id, label",
    ),
    long(
        "the author of the text",
        "tweet_id: item; user_id: author; worker: person; label: label",
        "tweet_id, worker, label",
    ),
    long(
        "only the author has a usual name",
        "tweet_id: item; user: author; initials: name; label: label",
        "tweet_id, initials, label",
    ),
    # counts that are called like annotators
    long(
        "number of annotators",
        "task: item; annotators: three; worker_id: person; answer: label",
        "task, worker_id, answer",
    ),
    long(
        "number of raters by item",
        "task: item; raters: number of raters; worker: person; answer: label",
        "task, worker, answer",
    ),
    long("counts of each class, called annotators", "item: half; label: class; annotators: count", None),
    long("counts of each class, called raters", "item: half; label: class; raters: count", None),
    long("counts of each class", "item: half; label: class; count: count", None),
    long(
        "one row per item, with the number of annotators",
        "item: single; annotators: count; label: label",
        None,
    ),
    long(
        "number of items of the batch",
        "items: three; task: item; worker: person; answer: label",
        "task, worker, answer",
    ),
    long(
        "votes and their number",
        "item: item; annotator: person; vote: label; votes: three",
        "item, annotator, vote",
    ),
    # gold, proposed, and several labels
    long("gold labels", f"{PLAIN}; gold: gold", READ),
    long("proposed label", "task: item; worker: person; label: gold; answer: label", "task, worker, answer"),
    long(
        "proposed answer",
        "task: item; worker: person; answer: gold; response: label",
        "task, worker, response",
    ),
    long(
        "category of the item",
        "item: item; annotator: person; category: topic; rating: stars",
        "item, annotator, rating",
    ),
    long(
        "class of the item beside a vote",
        "item: item; annotator: person; class: topic; vote: label",
        "item, annotator, vote",
    ),
    long(
        "mean score beside a vote",
        "item: item; annotator: person; score: mean; vote: label",
        "item, annotator, vote",
    ),
    long(
        "gold called label, answers of another name",
        "item: item; annotator: person; label: gold; rude: label",
        "item, annotator, rude",
    ),
    long(
        "majority called label, ratings of another name",
        "item: item; annotator: person; label: gold; stars: stars",
        "item, annotator, stars",
    ),
    long(
        "two questions, one called label",
        "item: item; annotator: person; label: label; rating: stars",
        READ,
        told="rating",
    ),
    long(
        "two questions with usual names", "item: item; annotator: person; answer: label; rating: stars", None
    ),
    long(
        "two questions as pandas names them",
        "item: item; annotator: person; label: label; label.1: tone",
        READ,
        told="label.1",
    ),
    long("two numbered questions", "item: item; annotator: person; label_1: label; label_2: tone", None),
    long("two questions of their own", "item: item; annotator: person; rude: label; tone: tone", None),
    long(
        "group of the annotator called class",
        "item: item; annotator: person; class: team; answer: label",
        "item, annotator, answer",
    ),
    long("prediction of a model", f"{PLAIN}; prediction: gold; model: language model", READ),
    long(
        "the model that wrote the text",
        "item: item; model: language model; rater: person; rating: stars",
        "item, rater, rating",
    ),
    long("language models as annotators", "item: item; model: person; label: label", "item, model, label"),
    long(
        "text by a model, called response",
        "prompt: text; response: topic; annotator: person; score: stars",
        "prompt, annotator, score",
    ),
    # which column holds the items
    long(
        "constant question",
        "question: question; item: item; worker: person; answer: label",
        "item, worker, answer",
    ),
    long(
        "constant question beside texts",
        "question: question; text: text; worker: person; answer: label",
        None,
    ),
    long("constant task beside texts", "task: question; comment: text; worker: person; label: label", None),
    long(
        "constant task beside images",
        "task: question; image_id: item; worker: person; label: label",
        "image_id, worker, label",
    ),
    long("constant item column", "item: constant; image: item; worker: person; label: label", None),
    long(
        "documents and sentences",
        "document_id: whole; sentence_id: part; worker: one of 3; label: label",
        None,
    ),
    long(
        "documents and numbers of sentences",
        "document_id: whole; sentence_id: part number; worker: one of 3; label: label",
        None,
    ),
    long(
        "documents and numbers of lines",
        "doc: whole; line: part number; annotator: one of 3; label: label",
        None,
    ),
    long(
        "turns of conversations",
        "conversation: whole; turn: part number; annotator: one of 3; label: label",
        None,
    ),
    long("items and turns", "item: whole; turn: part number; annotator: one of 3; label: label", None),
    long("aspects in rows", "item: whole; aspect: aspect; annotator: one of 3; label: label", None),
    long("questions in rows", "item: whole; question: aspect; annotator: one of 3; label: label", None),
    long("replies of several models", "prompt: whole; model: model; rater: one of 3; rating: stars", None),
    long(
        "texts of several models",
        "prompt_id: whole; response: reply; model: model; rater: one of 3; rating: stars",
        None,
    ),
    long("numbers within batches", "batch: batch; id: in batch; annotator: one of 3; label: label", None),
    long(
        "two rounds",
        "item: twice; round: round; annotator: again; label: label",
        "item, annotator, label",
        told="round",
    ),
    long("items and batches", f"batch: batch; {PLAIN}", READ),
    long("page and image", "task_id: batch; image_id: item; worker: person; label: label", None),
    long(
        "item and its id",
        "item_id: item number; item: text; annotator: person; label: label",
        "item_id, annotator, label",
    ),
    long(
        "ids and texts",
        "tweet_id: item; tweet: text; annotator: person; label: label",
        "tweet_id, annotator, label",
    ),
    long("texts only", "text: text; annotator: person; label: label", "text, annotator, label"),
    long("texts and languages", "text: text; lang: language; annotator: person; label: label", None),
    long("patients", "patient: item; observer: person; grade: stars", "patient, observer, grade"),
    long("recommendations", "userId: person; movieId: item; rating: stars; timestamp: time", None),
    long("reviews of papers", "paper: item; reviewer: person; score: stars; decision: gold", None),
    # labels of every kind
    long("stars", "item: item; annotator: person; label: stars", READ),
    long("agreement", "item: item; annotator: person; label: agree", READ),
    long("truth values", "item: item; annotator: person; label: true", READ),
    long("years", "item: item; annotator: person; label: year", READ),
    long("dates", "item: item; annotator: person; label: date", READ),
    long("a slider", "item: item; annotator: person; label: slider", READ),
    long(
        "several answers in a cell", "item: item; annotator: person; label: several", READ, told="separator"
    ),
    long("objects in cells", "item: item; annotator: person; label: object", None),
    long("texts as labels", "item: item; annotator: person; label: explained", None),
    long("times as labels", "item: item; annotator: person; value: time", None),
    long(
        "tags in columns",
        "item: item; annotator: person; toxic: flag; insult: flag 2",
        "item, annotator, toxic, insult",
        told="sets",
    ),
    long(
        "tags and a property of the annotator",
        "item: item; annotator: person; expert: expert; toxic: flag; insult: flag 2",
        "item, annotator, toxic, insult",
        told="sets",
    ),
    long("tags and stars", "item: item; annotator: person; toxic: flag; insult: flag 2; sure: stars", None),
    # real headers
    long("Wikipedia detox", "rev_id: item; worker_id: person; toxicity: flag; toxicity_score: stars", None),
    long(
        "GoEmotions",
        "text: text; id: item; author: author; subreddit: topic; rater_id: person; joy: flag; anger: flag 2",
        "id, rater_id, joy, anger",
        told="sets",
    ),
    long(
        "POPQUORN",
        "instance_id: item; user_id: person; text: text; rating: stars; race: team; age: age",
        "instance_id, user_id, rating",
    ),
    long(
        "DICES",
        "id: row; rater_id: person; rater_gender: team; item_id: item; safety_gold: gold; Q_overall: agree",
        "item_id, rater_id, Q_overall",
        label="Q_overall",
    ),
    # headers in other languages and forms
    long("German", "Satz: text; Person: name; Antwort: label", None),
    long("German with Label", "Satz: text; Annotator: name; Label: label", "Satz, Annotator, Label"),
    long("French", "texte: text; annotateur: name; étiquette: label", None),
    long("Spanish", "texto: text; anotador: name; etiqueta: label", None),
    long("Chinese", "文本: text; 标注者: name; 标签: label", None),
    long("Chinese ids", "文本ID: item; 标注者ID: name; 标签: label", None),
    long("Chinese author, English rest", "作者ID: author; text: text; annotator: name; label: label", None),
    long("Russian id of the annotator", "текст: text; автор id: name; annotator: person; label: label", None),
    long("capitals", "ITEM ID: item; ANNOTATOR: person; LABEL: label", "ITEM ID, ANNOTATOR, LABEL"),
    long("names as words", "item name: item; rater name: person; rating: stars", None),
    long(
        "spaces and hard spaces",
        "item\u00a0id: item; worker-id: person; Label : label",
        "item\u00a0id, worker-id, Label",
    ),
]

WIDE_TABLES = [
    wide("numbered raters", f"item: item; {RATERS}", "item, rater_1, rater_2, rater_3"),
    wide(
        "numbered raters with stars",
        "item: item; rater_1: stars 1; rater_2: stars 2",
        "item, rater_1, rater_2",
    ),
    wide(
        "e-mail addresses of raters",
        "item: item; ana@x.org: yes 1; ben@x.org: yes 2",
        "item, ana@x.org, ben@x.org",
    ),
    wide("texts as items", f"text: text; {RATERS}", "text, rater_1, rater_2, rater_3"),
    wide(
        "texts before ids", f"text: text; id: item; {RATERS}", "id, rater_1, rater_2, rater_3", layout="wide"
    ),
    *(
        wide(f"a column {name}", f"item: item; {RATERS}; {name}: gold", "item, rater_1, rater_2, rater_3")
        for name in (
            "gold",
            "majority",
            "Gold Label",
            "majority vote",
            "final_label",
            "ground truth",
            "truth",
        )
    ),
    *(
        wide(
            f"names and {name}", f"item: item; {PEOPLE}; {name}: gold", "item, Ana, Ben, Cleo", layout="wide"
        )
        for name in ("gold", "consensus", "adjudicated label", "correct answer")
    ),
    wide("a language", f"item: item; lang: language; {RATERS}", "item, rater_1, rater_2, rater_3"),
    wide(
        "remarks and times",
        f"item: item; {RATERS}; remarks: short remark; date: time",
        "item, rater_1, rater_2, rater_3",
    ),
    wide("an answer called label", f"item: item; {RATERS}; label: gold", None),
    wide("a topic", f"item: item; topic: topic; {RATERS}", "item, rater_1, rater_2, rater_3"),
    wide("the agreement", f"item: item; {RATERS}; agreement: agreement", "item, rater_1, rater_2, rater_3"),
    wide(
        "numbers of answers", f"item: item; {RATERS}; yes: n yes; no: n no", "item, rater_1, rater_2, rater_3"
    ),
    wide("names", f"item: item; {PEOPLE}", None),
    wide("names, said to be wide", f"item: item; {PEOPLE}", "item, Ana, Ben, Cleo", layout="wide"),
    wide(
        "names and a difficulty",
        f"item: item; {PEOPLE}; difficulty: hard",
        "item, Ana, Ben, Cleo",
        layout="wide",
        told="difficulty",
    ),
    wide(
        "names and the agreement",
        f"item: item; {PEOPLE}; agreement: agreement",
        "item, Ana, Ben, Cleo",
        layout="wide",
        told="agreement",
    ),
    wide(
        "names and a number",
        f"item: item; {PEOPLE}; n: three",
        "item, Ana, Ben, Cleo",
        layout="wide",
        told="n",
    ),
    wide(
        "index of pandas before the item",
        f"Unnamed: 0: row; item: item; {PEOPLE}",
        "item, Ana, Ben, Cleo",
        layout="wide",
    ),
    wide(
        "index of pandas before stars",
        "Unnamed: 0: row; item: item; Ana: stars 1; Ben: stars 2",
        "item, Ana, Ben",
        layout="wide",
    ),
    wide("index without a name as item", f": item; {PEOPLE}", ", Ana, Ben, Cleo", layout="wide"),
    wide("index without a name before raters", f": item; {RATERS}", None),
    wide("aspects", "item: item; food: yes 1; service: yes 2; price: yes 3", None),
    wide("numbered questions", "item: item; q1: yes 1; q2: yes 2; q3: yes 3", None),
    wide("numbers as names", "item: item; 1: yes 1; 2: yes 2; 3: yes 3", None),
    wide("numbers as names, with stars", "item: item; 1: stars 1; 2: stars 2", None),
    wide(
        "remarks of each rater",
        "item: item; rater_1: yes 1; rater_1_comment: short remark; rater_2: yes 2; "
        "rater_2_comment: short remark",
        None,
    ),
    wide(
        "pairs of columns",
        "item: item; annotator_1: name; label_1: yes 1; annotator_2: mail; label_2: yes 2",
        None,
    ),
    wide(
        "certainty of each rater",
        "item: item; rater_1: yes 1; sure_1: sure 5; rater_2: yes 2; sure_2: sure 5",
        None,
    ),
    wide("rows of annotators", "annotator: single; t1: yes 1; t2: yes 2; t3: yes 3", None),
    wide("rows of people", "name: single; t1: yes 1; t2: yes 2; t3: yes 3", None),
    wide("a form", "Timestamp: time; Is comment 1 rude?: yes 1; Is comment 2 rude?: yes 2", None),
    wide(
        "a form with addresses",
        "Timestamp: time; Email Address: mail; Is it rude?: yes 1; Is it fun?: yes 2",
        None,
    ),
    wide(
        "scored essays",
        "essay_id: item; essay: text; rater1_domain1: stars 1; rater2_domain1: stars 2; "
        "domain1_score: stars 3",
        None,
    ),
    wide("numbered observers", "item: item; observer1: stars 1; observer2: stars 2", None),
    wide("one rater", "item: item; rater_1: yes 1", None),
    # counts
    wide("counts", "item: item; no: n no; yes: n yes", None),
    wide("counts with a total", "item: item; no: n no; yes: n yes; total: three", None, layout="counts"),
    wide("own counts with a total", "item: item; count_no: n no; count_yes: n yes; count_all: three", None),
    wide("percentages", "item: item; no: rest; yes: percent", None, layout="counts", told="100"),
]

TOTAL_ROW = as_text(cells("item: item; no: n no; yes: n yes", WIDE, 24))
WIDE_TEXT = as_text(cells(f"item: item; {RATERS}", WIDE, 24))
WIDE_LABELS = wide("", f"item: item; {RATERS}", "item, rater_1, rater_2, rater_3").labels
SEMICOLONS = as_text(cells(PLAIN, LONG, 72), ";", "\r\n")


def written(
    name: str, content: Any, told: str = "", suffix: str = ".csv", labels: Any = PLAIN_LABELS
) -> Awkward:
    """Return the plain table, written in another way."""
    return Awkward(name, content, labels, told, suffix)


def sheet_of(rows: Sequence[Sequence[Any]], title: str | None = None) -> bytes:
    def fill(book: Any) -> None:
        if title:
            book.active.append([title])
            book.active.append([])
        for row in rows:
            book.active.append(list(row))

    return workbook(fill)


def second_sheet(book: Any) -> None:
    book.active.append(["Read me first"])
    for row in csv.reader(io.StringIO(PLAIN_TEXT)):
        book.create_sheet("labels").append(row) if "labels" not in book.sheetnames else book["labels"].append(
            row
        )


PLAIN_ROWS = list(csv.reader(io.StringIO(PLAIN_TEXT)))
MERGED = [[row[0] if n % 3 == 0 else None, *row[1:]] for n, row in enumerate(PLAIN_ROWS[1:])]
TYPED = [[row[0], row[1], row[2] == "yes"] for row in PLAIN_ROWS[1:]]
PIPES = PLAIN_TEXT.replace(",", "|")
GROUPED = "item,annotators,labels\n" + "".join(
    f"t{i:02d},{';'.join(LONG['person'](3 * i + j) for j in range(3))},"
    f"{';'.join(answer(3 * i + j) for j in range(3))}\n"
    for i in range(24)
)
BROKEN_TEXTS = "item,text,annotator,label\n" + "".join(
    f'{LONG["item"](n)},"{text(n // 3)},\nand then ""he"" left",{LONG["person"](n)},{answer(n)}\n'
    for n in range(72)
)
RECORDS = [dict(zip(PLAIN_ROWS[0], row, strict=True)) for row in PLAIN_ROWS[1:]]
FRAME = pd.DataFrame(RECORDS)

WRITTEN_TABLES = [
    written("byte-order mark, semicolons, Windows lines", b"\xef\xbb\xbf" + SEMICOLONS.encode()),
    written("two byte-order marks", b"\xef\xbb\xbf\xef\xbb\xbf" + PLAIN_TEXT.encode()),
    written("a line sep=;", "sep=;\r\n" + SEMICOLONS),
    written("pipes", PIPES, suffix=".txt"),
    written("tabs in a csv", PLAIN_TEXT.replace(",", "\t")),
    written("commas in a tsv", PLAIN_TEXT, suffix=".tsv"),
    written("old Macintosh lines", PLAIN_TEXT.replace("\n", "\r")),
    written("a comma at the end of each line", PLAIN_TEXT.replace("\n", ",\n")),
    written("blank rows of Excel", PLAIN_TEXT + ",,\n,,\n"),
    written("blank lines", PLAIN_TEXT.replace("\n", "\n\n")),
    written("spaces around names", PLAIN_TEXT.replace("item,annotator,label", " item , annotator,label ")),
    written("all quoted", "\n".join(",".join(f'"{cell}"' for cell in row) for row in PLAIN_ROWS) + "\n"),
    written("texts with line breaks and quotes", BROKEN_TEXTS),
    written(
        "decimal commas",
        as_text(cells("item: item; annotator: person; label: decimal", LONG, 72), ";"),
        told=",",
        labels=long("", "item: item; annotator: person; label: decimal", READ).labels,
    ),
    written("decimal commas between commas", "item,annotator,label\na,x,3,5\na,y,4\n", labels=None),
    written("a title above the header", "Export of project 7\n" + PLAIN_TEXT, labels=None),
    written("a remark above the header", "# exported 2024-03-01, all rounds\n" + PLAIN_TEXT, labels=None),
    written("no header", PLAIN_TEXT.partition("\n")[2], labels=None),
    written("two files joined, with both headers", PLAIN_TEXT + PLAIN_TEXT, labels=None),
    written(
        "a second header",
        PLAIN_TEXT.replace("\n", "\nItem ID,Your name,Is this comment rude?\n", 1),
        labels=None,
    ),
    written(
        "two more headers of Qualtrics",
        PLAIN_TEXT.replace(
            "\n",
            "\nItem ID,Your name,Is it rude?\n"
            '"{""ImportId"":""a""}","{""ImportId"":""b""}","{""ImportId"":""c""}"\n',
            1,
        ),
        labels=None,
    ),
    written(
        "a second header of a wide table", WIDE_TEXT.replace("\n", "\nID,Ana,Ben,Cleo\n", 1), labels=None
    ),
    written("a second header without an item", WIDE_TEXT.replace("\n", "\n,Ana,Ben,Cleo\n", 1), labels=None),
    written("a row of totals", PLAIN_TEXT + "Total,,72\n", labels=None),
    written("a row of totals of a wide table", WIDE_TEXT + "Total,15,11,14\n", labels=None),
    Awkward("a row of totals of counts", TOTAL_ROW + "Total,36,36\n", None, options={"layout": "counts"}),
    Awkward("a pivot table", TOTAL_ROW.replace("item", "Row Labels") + "Grand Total,36,36\n", None),
    written(
        "one item cell for several rows",
        as_text(
            dict(
                zip(
                    PLAIN_ROWS[0],
                    zip(*[[cell or "" for cell in row] for row in MERGED], strict=True),
                    strict=True,
                )
            )
        ),
        labels=None,
    ),  # type: ignore[arg-type]
    written("doubled names of columns", "item,annotator,label,label\na,x,yes,no\n", labels=None),
    written(
        "a text with a comma that is not quoted", "item,text,annotator,label\na,well, no,x,yes\n", labels=None
    ),
    written("lists of people and answers in cells", GROUPED, labels=None),
    written("Latin-1", "item,annotator,label\na,Zoë,yes\n".encode("latin-1"), labels=None),
    written("Unicode text of Excel", PLAIN_TEXT.encode("utf-16"), suffix=".txt", labels=None),
    raw(
        "words for a missing label",
        "item,annotator,label\na,x,yes\na,y,n/a\nb,x,yes\nb,y,yes\n",
        "a x yes,a y n/a,b x yes,b y yes",
        told="n/a",
    ),
    raw(
        "capitals of labels",
        "item,annotator,label\na,x,yes\na,y,Yes\nb,x,yes\nb,y,no\n",
        "a x yes,a y Yes,b x yes,b y no",
        told="ignore_case",
    ),
    raw(
        "whole numbers as decimals",
        "item,annotator,label\na,x,1\na,y,1.0\nb,x,2\nb,y,2.0\n",
        "a x 1,a y 1.0,b x 2,b y 2.0",
        told="1.0",
    ),
    raw(
        "ids as decimals",
        "item,annotator,label\n1,x,yes\n1.0,y,no\n2,x,yes\n2.0,y,yes\n",
        "1 x yes,1.0 y no,2 x yes,2.0 y yes",
        told="1.0",
    ),
    raw(
        "quoted labels",
        'item,annotator,label\na,x,yes\na,y,"""yes"""\nb,x,yes\nb,y,no\n',
        'a x yes,a y "yes",b x yes,b y no',
        told="yes",
    ),
    raw(
        "two forms of an accent",
        "item,annotator,label\na,x,caf\u00e9\na,y,cafe\u0301\nb,x,no\nb,y,no\n",
        "a x caf\u00e9,a y cafe\u0301,b x no,b y no",
        told="caf",
    ),
    Awkward(
        "hard spaces in names",
        "item,annotator,label\na,x,yes\na,y\u00a0,no\nb,x,yes\nb,y,yes\n",
        Counter([("a", "x", "yes"), ("a", "y\u00a0", "no"), ("b", "x", "yes"), ("b", "y", "yes")]),
        told="white space",
    ),
    # other formats
    written("JSON lines", "\n".join(map(json.dumps, RECORDS)), suffix=".jsonl"),
    written("JSON", json.dumps(RECORDS), suffix=".json"),
    written(
        "JSON by column",
        json.dumps({name: [row[name] for row in RECORDS] for name in PLAIN_ROWS[0]}),
        suffix=".json",
        labels=None,
    ),
    written("JSON by column and row", FRAME.to_json(), suffix=".json", labels=None),
    written(
        "JSON with objects as labels",
        json.dumps([row | {"label": {"choice": row["label"]}} for row in RECORDS]),
        suffix=".json",
        labels=None,
    ),
    written(
        "JSON with answers in lists",
        json.dumps(
            [{"item": f"t{i:02d}", "answers": [{"annotator": "x", "label": answer(i)}]} for i in range(24)]
        ),
        suffix=".json",
        labels=None,
    ),
    raw(
        "JSON with parallel lists",
        json.dumps(
            [
                {"item": "a", "annotators": ["x", "y"], "labels": ["yes", "no"]},
                {"item": "b", "annotators": ["x", "y"], "labels": ["yes", "yes"]},
            ]
        ),
        ABC,
        suffix=".json",
    ),
    written("a sheet", sheet_of(PLAIN_ROWS), suffix=".xlsx"),
    written("a sheet with a title", sheet_of(PLAIN_ROWS, "Votes of March"), suffix=".xlsx", labels=None),
    written("a sheet with merged cells", sheet_of([PLAIN_ROWS[0], *MERGED]), suffix=".xlsx", labels=None),
    written("the second sheet", workbook(second_sheet), suffix=".xlsx", labels=None),
    written(
        "a sheet of truth values",
        sheet_of([PLAIN_ROWS[0], *TYPED]),
        suffix=".xlsx",
        labels=Counter((row[0], row[1], str(row[2])) for row in TYPED),
    ),
    written(
        "a wide sheet", sheet_of(list(csv.reader(io.StringIO(WIDE_TEXT)))), suffix=".xlsx", labels=WIDE_LABELS
    ),
    written("a frame", FRAME),
    written("a frame with an index of two levels", FRAME.set_index(["item", "annotator"])),
    written("a series with an index of two levels", FRAME.set_index(["item", "annotator"])["label"]),
    written(
        "a frame with names of two levels",
        FRAME.pivot(index="item", columns="annotator", values=["label"]),
        labels=None,
    ),
    written(
        "counted values", FRAME.groupby(["item", "label"]).size().rename("count").reset_index(), labels=None
    ),
]

TABLES = [*LONG_TABLES, *WIDE_TABLES, *WRITTEN_TABLES]

REMEDY = re.compile(
    r"=|name |give|correct|add|close|quote|rename|choose|complete|use|save|remove|separate|write",
    re.IGNORECASE,
)


def read(table: Awkward, folder: Path) -> tuple[Counter[tuple[str, ...]], tuple[str, ...]]:
    """Return the labels that are read from a table, and the notes."""
    source = table.content
    if isinstance(source, str | bytes):
        file = folder / f"votes{table.suffix}"
        file.write_bytes(source.encode() if isinstance(source, str) else source)
        source = file
    labels = ds.read_annotations(source, **table.options)
    columns = labels.items[labels.item], labels.annotators[labels.annotator], labels.classes[labels.label]
    if labels.anonymous:
        columns = columns[0], ["?"] * labels.n_labels, columns[2]
    return Counter(zip(*(map(str, column) for column in columns), strict=True)), labels.notes


def ending(table: Awkward, folder: Path) -> tuple[str, str]:
    """Return how the reading of a table ends (right, asked, noted or wrong), and the message or the notes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            labels, notes = read(table, folder)
    except ds.DissensusError as error:
        message = str(error).replace(str(folder), "")
        helps = "\n" not in message and REMEDY.search(message)
        return "asked" if helps else "wrong", message
    told = "; ".join(notes)
    if labels == table.labels and table.told in told:
        return "right", told
    return "noted" if told and table.told in told else "wrong", told or "silent"


def main() -> None:
    endings = Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        for table in TABLES:
            how, message = ending(table, Path(folder))
            endings[how] += 1
            stated = "asked" if table.labels is None else "right"
            if how not in (stated, "right", "asked") or "-v" in sys.argv or how != stated:
                print(f"{how:6} (stated {stated}) {table.name}: {message}")
    print(f"{len(TABLES)} tables: {dict(endings)}")
    sys.exit(bool(endings["wrong"]))


if __name__ == "__main__":
    main()

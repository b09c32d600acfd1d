"""Draw the labels of the datasets that are part of the package (``src/dissensus/datasets``).

``python -m experiments.bundled_sets`` writes the files; a test compares their bytes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Rows = list[Sequence[object]]
Files = dict[str, Rows]

DATASETS_FOLDER = Path(__file__).parents[1] / "src" / "dissensus" / "datasets"

# ---- canteen ------------------------------------------------------------------------------------------

PEOPLE = ("Ana", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ivo", "Kim", "Lou", "Max")
HEAR_IRONY, CARELESS = ("Ivo", "Kim", "Lou"), "Max"
MEANINGS = ("complaint", "neutral", "praise")
# P(complaint), P(neutral), P(praise) for most people, and for those who recognise irony
READINGS = {
    "praise": ((0.03, 0.07, 0.90), (0.05, 0.10, 0.85)),
    "complaint": ((0.92, 0.06, 0.02), (0.90, 0.08, 0.02)),
    "neutral": ((0.06, 0.88, 0.06), (0.10, 0.84, 0.06)),
    "ironic": ((0.12, 0.08, 0.80), (0.92, 0.05, 0.03)),
    "mixed": ((0.40, 0.30, 0.30), (0.60, 0.25, 0.15)),
}
COMMENTS = {
    "praise": (
        "The lentil soup was warm and well seasoned.",
        "Thank you for the fresh bread in the morning.",
        "The new salad bar is a real improvement.",
        "Friendly people at the counter, every day.",
        "Best potato pancakes I have had in years.",
        "The vegetarian dish was the winner this week.",
        "Quick service, even at half past twelve.",
        "I came for the pasta and I will come back.",
        "The apple cake on Friday made my week.",
        "Good portions and a fair price.",
        "Finally a curry with some spice in it.",
        "The tables were clean and the water was cold.",
    ),
    "complaint": (
        "The rice was cold when I sat down.",
        "I waited twenty minutes for a bowl of soup.",
        "There was no vegan dish left at noon.",
        "The fish smelled as if it came on foot.",
        "My knife was not clean.",
        "Six euros for a plate of plain noodles is too much.",
        "The card reader was broken again.",
        "Please stop putting sugar into the salad.",
        "The coffee tastes of the machine.",
        "All trays were wet.",
        "The meat was dry and the sauce had run out.",
        "It is so loud that nobody can talk.",
    ),
    "neutral": (
        "The canteen opens at half past eleven.",
        "I had the pasta on Tuesday.",
        "The menu hangs next to the entrance.",
        "There are two tills, one for cards.",
        "On Thursday there is fish.",
        "The salad is sold by weight.",
        "I usually eat at one o'clock.",
        "The trays go on the belt on the left.",
        "Next week the menu changes.",
        "Water is next to the cutlery.",
        "My colleague took the soup.",
        "The canteen is on the ground floor.",
    ),
    "ironic": (
        "Great, soup again.",
        "What a surprise, the card reader works today.",
        "Lovely, my potatoes and I have both been here since eleven.",
        "Wonderful, a third day of the same stew.",
        "How generous, one whole slice of tomato.",
        "Bravo, the salad is almost green.",
        "Nice touch, serving the ice cream warm.",
        "I love a long queue, it builds the appetite.",
        "Excellent, the chewing gum was called steak today.",
        "So kind of you to save us from too much taste.",
        "Brilliant idea to close the counter at noon.",
        "The peas were perfect, all four of them.",
    ),
    "mixed": (
        "The soup was good but the bread was old.",
        "Tasty, but far too little for a working day.",
        "Slow today, though the people were kind.",
        "The curry was fine, the rice was not.",
        "Better than last week.",
        "Not bad for a Monday.",
        "It was all right.",
        "I expected more from the new cook.",
        "The cake saved the day.",
        "Good food, bad chairs.",
        "It fills the stomach.",
        "The price went up and so did the taste.",
    ),
}


def canteen() -> Files:
    """Draw sixty comments with nine labels each; three of twelve people recognise irony, one is careless."""
    rng = np.random.default_rng(20)
    texts = [(kind, text) for group in zip(*_groups(), strict=True) for kind, text in group]
    labels: Rows = [("task", "worker", "label")]
    items: Rows = [("task", "text", "kind")]
    for number, (kind, text) in enumerate(texts, 1):
        items.append((f"comment{number:02d}", text, kind))
        for who in np.sort(rng.choice(len(PEOPLE), size=9, replace=False)):
            probabilities = (
                READINGS[kind][PEOPLE[who] in HEAR_IRONY] if PEOPLE[who] != CARELESS else [1 / 3] * 3
            )
            labels.append((f"comment{number:02d}", PEOPLE[who], MEANINGS[rng.choice(3, p=probabilities)]))
    return {"labels": labels, "items": items}


def _groups() -> list[list[tuple[str, str]]]:
    return [[(kind, text) for text in texts] for kind, texts in COMMENTS.items()]


# ---- birds --------------------------------------------------------------------------------------------

SPECIES = ("blackbird", "crow", "jackdaw", "starling")
ALIKE = {"blackbird": "starling", "starling": "blackbird", "crow": "jackdaw", "jackdaw": "crow"}
VOLUNTEERS = 15


def birds() -> Files:
    """Draw 120 photographs with four labels each; most errors are the species that looks similar."""
    rng = np.random.default_rng(21)
    skill = rng.beta(4, 1.6, size=VOLUNTEERS)
    skill[:2] = 0.25  # two volunteers guess
    labels: Rows = [("task", "worker", "label")]
    gold: Rows = [("task", "label")]
    for number in range(1, 121):
        truth = SPECIES[rng.choice(4, p=[0.35, 0.3, 0.2, 0.15])]
        gold.append((f"photo{number:03d}", truth))
        for who in np.sort(rng.choice(VOLUNTEERS, size=4, replace=False)):
            labels.append((f"photo{number:03d}", f"volunteer{who + 1:02d}", _seen(truth, skill[who], rng)))
    return {"labels": labels, "gold": gold}


def _seen(truth: str, skill: float, rng: np.random.Generator) -> str:
    if rng.random() < skill:
        return truth
    others = [name for name in SPECIES if name != truth]
    probabilities = [0.7 if name == ALIKE[truth] else 0.15 for name in others]
    return others[rng.choice(3, p=probabilities)]


# ---- bread --------------------------------------------------------------------------------------------

TASTERS = 14


def bread() -> Files:
    """Draw fifty loaves with six grades from 1 to 5 each; some tasters are strict, some answers are blank."""
    rng = np.random.default_rng(22)
    strict, noise = rng.normal(0, 0.6, size=TASTERS), rng.uniform(0.4, 0.9, size=TASTERS)
    labels: Rows = [("task", "worker", "label")]
    for number in range(1, 51):
        quality = rng.normal(3.2, 1.0)
        for who in np.sort(rng.choice(TASTERS, size=6, replace=False)):
            grade = round(quality - strict[who] + rng.normal(0, noise[who]))
            blank = rng.random() < 1 / 12
            labels.append(
                (f"loaf{number:02d}", f"taster{who + 1:02d}", "" if blank else min(max(grade, 1), 5))
            )
    return {"labels": labels}


# ---- replies ------------------------------------------------------------------------------------------

VERDICTS = ("helpful", "partly", "wrong")


def replies() -> Files:
    """Draw 150 replies judged by three of six people and three models: two nearly equal, one lenient."""
    rng = np.random.default_rng(23)
    humans, judges = [f"person{n}" for n in range(1, 7)], ["model-a", "model-a-mini", "model-b"]
    labels: Rows = [("task", "worker", "label")]
    for number in range(1, 151):
        opinion = rng.dirichlet([[9, 2, 1], [2, 5, 2], [1, 2, 8]][rng.choice(3, p=[0.5, 0.25, 0.25])])
        answers = {humans[who]: _drawn(opinion, rng) for who in np.sort(rng.choice(6, size=3, replace=False))}
        answers["model-a"] = int(np.argmax(opinion)) if rng.random() < 0.85 else _drawn(opinion, rng)
        answers["model-a-mini"] = answers["model-a"] if rng.random() < 0.93 else _drawn(opinion, rng)
        answers["model-b"] = 0 if rng.random() < 0.45 else _drawn(opinion, rng)
        labels += [(f"reply{number:03d}", name, VERDICTS[label]) for name, label in answers.items()]
    annotators: Rows = [("worker", "kind")]
    annotators += [(name, "human") for name in humans] + [(name, "llm") for name in judges]
    return {"labels": labels, "annotators": annotators}


def _drawn(probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
    return int(rng.choice(len(probabilities), p=probabilities))


# ---- posters ------------------------------------------------------------------------------------------


def posters() -> Files:
    """Draw 500 comparisons of twelve posters by twenty voters, one of whom answers at random."""
    rng = np.random.default_rng(24)
    quality, reliability = rng.normal(0, 1.0, size=12), np.append(rng.uniform(0.7, 1.5, size=19), 0.0)
    labels: Rows = [("worker", "left", "right", "label")]
    for _ in range(500):
        left, right = rng.choice(12, size=2, replace=False)
        who = int(rng.integers(20))
        ahead = reliability[who] * (quality[left] - quality[right])
        won = left if rng.random() < 1 / (1 + np.exp(-ahead)) else right
        labels.append((f"voter{who + 1:02d}", *(f"poster{n + 1:02d}" for n in (left, right, won))))
    return {"labels": labels}


SETS = {"canteen": canteen, "birds": birds, "bread": bread, "replies": replies, "posters": posters}


def text_of(rows: Rows) -> str:
    """Return a table as the text of its file."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def main() -> None:
    """Write every table of every dataset."""
    for name, made in SETS.items():
        (DATASETS_FOLDER / name).mkdir(exist_ok=True)
        for table, rows in made().items():
            (DATASETS_FOLDER / name / f"{table}.csv").write_text(text_of(rows), encoding="utf-8")


if __name__ == "__main__":
    main()

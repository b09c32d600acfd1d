"""``dissensus open`` as a process, and small files of labels for it."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dissensus

SCALES: dict[str, list[str]] = {
    "nominal": ["no", "maybe", "yes"],
    "ordinal": ["bad", "fair", "good"],
    "multi": ["insult", "threat", "toxic"],
    "pairwise": ["left", "tie", "right"],
    "many": [f"category {n:02d}" for n in range(12)],
}


class OpenProcess:
    """``dissensus open`` in a process of its own, and requests to it."""

    def __init__(self, folder: Path, *words: str) -> None:
        source = str(Path(dissensus.__file__).parents[1])
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dissensus", "open", *words, "--no-browser"],
            stdout=subprocess.PIPE,
            cwd=folder,
            env=os.environ | {"PYTHONPATH": source},
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[-1]

    def request(
        self, path: str, body: Any = None, address: str | None = None, **headers: str
    ) -> tuple[int, Any]:
        """Return status and JSON of the answer; ``address`` replaces the page's own."""
        parts = urlsplit(address or self.url)
        connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        try:
            connection.request("GET" if body is None else "POST", parts.path + path, data, headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode()

    def state(self) -> dict[str, Any]:
        """Return the state."""
        state: dict[str, Any] = self.request("state")[1]
        return state

    def stop(self, number: int = signal.SIGKILL) -> None:
        """Stop the process with a signal."""
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def write_case(
    folder: Path, kind: str = "nominal", n_items: int = 60, texts: dict[int, str] | None = None
) -> list[str]:
    """Write labels of a kind and a table of items with texts, and return the words that open them."""
    rng, scale, texts = random.Random(0), SCALES[kind], texts or {}
    votes: list[dict[str, Any]] = []
    for m in range(n_items):
        for n in rng.sample(range(8), 4):
            label: Any = scale[m % len(scale)] if rng.random() < 0.55 else rng.choice(scale)
            if kind == "multi":
                label = [one for one in scale if one == label or rng.random() < 0.2]
            row = {"item": f"c{m}", "annotator": f"Ana {n}", "label": label}
            if kind == "pairwise":
                row = {"prompt": f"q{m}", "model_a": "north", "model_b": "south", "annotator": f"Ana {n}"}
                row["winner"] = {"left": "north", "right": "south"}.get(label, label)
            votes.append(row)
    if kind == "multi":
        lines = "".join(json.dumps(row) + "\n" for row in votes)
        (folder / "votes.jsonl").write_text(lines, encoding="utf-8")
    else:
        write_csv(folder / "votes.csv", votes)
    if kind == "pairwise":
        return ["votes.csv"]
    plain = "The remark number {}, in a few words."
    items = [
        {"item": f"c{m}", "text": texts.get(m, plain.format(m)), "source": "forum"} for m in range(n_items)
    ]
    write_csv(folder / "items.csv", items)
    scales = ["--classes", "<".join(scale)] if kind == "ordinal" else []
    return ["votes.jsonl" if kind == "multi" else "votes.csv", "--items", "items.csv", *scales]


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a CSV file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def saved_decisions(folder: Path) -> dict[str, Any]:
    """Return the decision on each item that counts, from the complete lines of the file of decisions."""
    text = (folder / "votes-decisions" / "decisions.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.split("\n")[:-1]]
    undone = {row["undo"] for row in rows if "undo" in row}
    return {row["item"]: row for row in rows if "item" in row and row["seq"] not in undone}

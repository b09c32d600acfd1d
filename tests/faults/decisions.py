"""Decisions posted to ``dissensus open`` while it is killed at random moments, then started again.

    python -m tests.faults.decisions [KILLS]      100 kills by default

Three tabs post decisions and undo some of them. A request that the server answered is confirmed: after the
kill, its line must be in the file of decisions, and the server that is started next must count the decisions
as the file does.
"""

import json
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.helpers.decide import SCALES, OpenProcess, saved_decisions, write_case

N_ITEMS, N_TABS = 40, 3
MAX_SECONDS = 0.6  # of posting before a kill


@dataclass
class Posted:
    """Requests of the tabs: confirmed lines by number, and how many were not answered."""

    confirmed: dict[int, dict[str, Any]] = field(default_factory=dict)
    n_unanswered: int = 0


def post(process: OpenProcess, posted: Posted, seed: int, killed: threading.Event) -> None:
    """Decide random items, and undo a few decisions, until the server is killed."""
    rng = random.Random(seed)
    while not killed.is_set():
        body: dict[str, Any] = {}
        if rng.random() < 0.85:
            label = rng.choice([*SCALES["nominal"], None])
            body = {"item": f"c{rng.randrange(N_ITEMS)}", "label": label, "unsure": label is None}
            body["note"] = "é" * rng.choice([0, 5, 5000])
        try:
            status, answer = process.request("decide" if body else "undo", body)
        except (OSError, HTTPException):
            posted.n_unanswered += 1
            return
        if status == 200:
            posted.confirmed[answer["seq"]] = body | {"item": answer["item"]}
        elif status != 409:  # nothing to undo
            raise AssertionError(f"status {status}: {answer}")


def wait_for_items(process: OpenProcess) -> dict[str, Any]:
    """Return the state when items can be decided."""
    for _ in range(1200):
        state = process.state()
        if state["error"]:
            raise AssertionError(state["error"])
        if "n_items" in state:
            return state
        time.sleep(0.05)
    raise TimeoutError


def missing_lines(folder: Path, confirmed: dict[int, dict[str, Any]]) -> list[int]:
    """Return the numbers of confirmed lines that the file does not contain as they were posted."""
    path = folder / "votes-decisions" / "decisions.jsonl"
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    rows = {row.get("seq", 0): row for row in map(json.loads, lines)}

    def is_kept(seq: int, body: dict[str, Any]) -> bool:
        row = rows.get(seq, {})
        if "label" not in body:
            return rows.get(row.get("undo", -1), {}).get("item") == body["item"]
        return (row.get("item"), row.get("label", ""), row.get("note", "")) == (
            body["item"], body["label"], body["note"],
        )  # fmt: skip

    return [seq for seq, body in confirmed.items() if not is_kept(seq, body)]


def study(n_kills: int, folder: Path, seed: int = 0) -> tuple[int, int, list[str]]:
    """Return the numbers of confirmed and of unanswered requests over all kills, and the faults."""
    words, rng, faults = write_case(folder, n_items=N_ITEMS), random.Random(seed), list[str]()
    posted = Posted()
    for kill in range(n_kills):
        process = OpenProcess(folder, *words)
        try:
            state = wait_for_items(process)
            if kill:
                counted = saved_decisions(folder)
                unsure = sum(row["label"] is None for row in counted.values())
                if (state["decided"], state["unsure"]) != (len(counted) - unsure, unsure):
                    faults.append(f"kill {kill}: the server counts {state['decided']}, not {len(counted)}")
            killed = threading.Event()
            tabs = [
                threading.Thread(target=post, args=(process, posted, rng.randrange(1 << 30), killed))
                for _ in range(N_TABS)
            ]
            for tab in tabs:
                tab.start()
            time.sleep(rng.uniform(0, MAX_SECONDS))
        finally:
            process.stop()
        killed.set()
        for tab in tabs:
            tab.join()
        missing = missing_lines(folder, posted.confirmed)
        faults += [f"kill {kill}: confirmed line {seq} is missing" for seq in missing]
    return len(posted.confirmed), posted.n_unanswered, faults


if __name__ == "__main__":
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as place:
        n_confirmed, n_unanswered, found = study(kills, Path(place))
    print(f"{kills} kills: {n_confirmed:,} confirmed, {n_unanswered} unanswered, {len(found)} faults")
    print("\n".join(found))
    sys.exit(bool(found))

"""``dissensus open``: decide items on a page."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from dissensus.cli import options as opt
from dissensus.cli.app import argument, option, written
from dissensus.cli.terminal import count, say


@opt.command("dissensus open votes.csv", "dissensus open votes-refined", name="open")
def open_page(
    columns: opt.Columns,
    path: Annotated[
        Path | None, argument("FILE|RUN", "File of labels, or directory of a finished run.")
    ] = None,
    items: opt.ItemTable = None,
    output: Annotated[Path | None, option("DIR", "Directory of the decisions.", "--output", "-o")] = None,
    no_browser: Annotated[bool, option(None, "Only print the address.", "--no-browser")] = False,
) -> None:
    """Decide items one at a time, on a page in the browser.

    The page is for this machine only, and runs until Ctrl-C. Every decision is saved at once, in
    votes-decisions/decisions.jsonl for votes.csv; 'dissensus fit --gold' reads this file. Without FILE,
    drop a file on the page.
    """
    from functools import partial

    from dissensus.decide.room import Room
    from dissensus.decide.server import DecideServer

    room = Room(output, columns.read if items is None else partial(columns.read, items=items))
    server = DecideServer(room)
    if path is not None:
        room.open(path)
    say(f"Decide at {server.url}", "Stop with Ctrl-C.")
    sys.stdout.flush()
    if not no_browser:
        webbrowser.open(server.url)
    with suppress(KeyboardInterrupt):
        server.run()
    written.set(True)
    if room.decisions:
        say(f"{count(len(room.decisions), 'decision')} in {room.journal.path}")

"""``dissensus open``: decide items on a page."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from dissensus.cli import options as opt
from dissensus.cli.app import argument, option, written
from dissensus.cli.terminal import count, note, say


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
    votes-decisions/decisions.jsonl beside votes.csv; 'dissensus fit --gold' reads this file. Without FILE,
    drop a file on the page.
    """
    import os
    import warnings
    from functools import partial
    from tempfile import TemporaryDirectory

    from dissensus.decide.server import DecideServer
    from dissensus.decide.session import DecisionSession

    session = DecisionSession(output, columns.read if items is None else partial(columns.read, items=items))
    server = DecideServer(session)
    if path is not None:
        with warnings.catch_warnings(action="ignore"):  # the notes are printed now, and not at the end
            session.open(path)
        note(*session.labels.notes)
    say(f"Decide at {server.url}", "Stop with Ctrl-C.")
    sys.stdout.flush()
    with TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        if not no_browser:  # an address on a command line could be read by other users
            page = Path(folder) / "open.html"
            os.close(os.open(page, os.O_CREAT | os.O_WRONLY, 0o600))
            page.write_text(f'<meta http-equiv="refresh" content="0; url={server.url}">', encoding="utf-8")
            webbrowser.open(page.as_uri())
        server.run()
    written.set(True)
    if session.decisions:
        say(f"{count(len(session.decisions), 'decision')} in {session.journal.path}")
    session.close()

"""The page, made of the same modules as the report, and its Content-Security-Policy."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

# folder below ``dissensus`` and name of each part, in the order in which they run
PAGE_SCRIPTS = (
    ("report", "dom.js"),
    ("report", "text.js"),
    ("decide", "markdown.js"),
    ("decide", "decide.js"),
)
PAGE_STYLES = (("report", "style.css"), ("decide", "decide.css"))
# A notebook on this machine, in a browser or in VS Code, may show the page in a frame.
FRAMES = "'self' http://localhost:* http://127.0.0.1:* vscode-webview: vscode-file:"


@cache
def decide_page() -> tuple[str, str]:
    """Return the HTML of the page, and its policy."""
    style, parts = "\n".join(map(_asset, PAGE_STYLES)), "\n".join(map(_asset, PAGE_SCRIPTS))
    script = f'(() => {{\n"use strict";\n{parts}\n}})();\n'
    fields = {"style": style, "script": script}
    page = re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], _asset(("decide", "decide.html")))
    allowed = (
        f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in (script, style)
    )
    policy = (
        "default-src 'none'; script-src {}; style-src {}; img-src 'self' data:; connect-src 'self'; "
        "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
    ).format(*allowed)
    return page, policy + FRAMES


def _asset(part: tuple[str, str]) -> str:
    folder, name = part
    return (files(f"dissensus.{folder}") / "assets" / name).read_text(encoding="utf-8")

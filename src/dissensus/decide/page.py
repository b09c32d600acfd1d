"""The page, made of the same modules as the report, and its Content-Security-Policy."""

from __future__ import annotations

from functools import cache

from dissensus.report import asset, fill, joined_script, source_hash

# name and package of each part, in the order in which they run
PAGE_SCRIPTS = {"dom.js": "report", "text.js": "report", "markdown.js": "decide", "decide.js": "decide"}
PAGE_STYLES = {"style.css": "report", "decide.css": "decide"}
# A notebook on this machine, in a browser or in VS Code, may show the page in a frame.
FRAMES = "'self' http://localhost:* http://127.0.0.1:* vscode-webview: vscode-file:"


@cache
def decide_page() -> tuple[str, str]:
    """Return the HTML of the page, and its policy."""
    style = "\n".join(asset(*part) for part in PAGE_STYLES.items())
    script = joined_script(asset(*part) for part in PAGE_SCRIPTS.items())
    page = fill(asset("decide.html", "decide"), {"style": style, "script": script})
    policy = (
        f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; "
        "img-src 'self' data:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors {FRAMES}"
    )
    return page, policy

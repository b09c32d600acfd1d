"""A page without a script: headings, sentences, tables, and charts of intervals drawn as SVG.

For answers that are no classes: ratings, and scores of things that were compared. Everything that comes from
the data is escaped, and the policy of the page allows its one style and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.numerics import Array

STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; }
table { border-collapse: collapse; } th, td { padding: .15rem .8rem .15rem 0; text-align: left; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr { border-bottom: 1px solid #8884; } .wide { overflow-x: auto; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; }
svg line { stroke: currentColor; stroke-opacity: .45; } svg circle { fill: #2a6fb0; }
footer { margin-top: 3rem; opacity: .75; font-size: .9rem; }
"""
MOST_SHOWN = 40  # rows of a chart
MOST_ROWS = 1_000  # rows of a table
_WIDTH, _ROW, _LEFT, _LONGEST = 800, 18, 220, 30


def page(title: str, blocks: Sequence[str], command: str = "") -> str:
    """The whole page."""
    hashed = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{hashed}'; base-uri 'none'; form-action 'none'"
    made = f"Made with dissensus {__version__}" + (f" by <code>{html.escape(command)}</code>" * bool(command))
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>"
    )
    body = "\n".join([f"<h1>{html.escape(title)}</h1>", *blocks, f"<footer>{made}.</footer>"])
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def heading(text: str) -> str:
    """A section's name."""
    return f"<h2>{html.escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Sentences."""
    return f"<p>{html.escape(text)}</p>"


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers stand to the right."""
    head = "".join(f"<th{_side(rows, i)}>{html.escape(name)}</th>" for i, name in enumerate(columns))
    body = "\n".join(
        "<tr>"
        + "".join(f"<td{_side(rows, i)}>{html.escape(words(cell))}</td>" for i, cell in enumerate(row))
        + "</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = paragraph(f"… and {len(rows) - MOST_ROWS:,} more in the files beside this page.")
    whole = (
        f'<div class="wide"><table><thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>'
    )
    return whole + (more if len(rows) > MOST_ROWS else "")


def _side(rows: Sequence[Sequence[Any]], column: int) -> str:
    return "" if rows and isinstance(rows[0][column], str) else ' class="n"'


def words(value: Any) -> str:
    """A cell as text: numbers with four digits."""
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int | np.integer) else f"{value:.4g}"


def interval_chart(names: Sequence[str], middle: Array, low: Array, high: Array, label: str) -> str:
    """A dot and a line for each name; of many, some that are evenly spaced in the order given."""
    chosen = evenly(len(names), MOST_SHOWN)
    first, last = float(np.min(low[chosen])), float(np.max(high[chosen]))
    span = (last - first) or 1.0

    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - 20) * (value - first) / span

    rows = []
    for place, i in enumerate(chosen):
        y = _ROW * (place + 1)
        name = names[i] if len(names[i]) <= _LONGEST else names[i][: _LONGEST - 1] + "…"
        rows.append(
            f'<text x="0" y="{y + 4}">{html.escape(name)}</text>'
            f'<line x1="{at(low[i]):.1f}" x2="{at(high[i]):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle cx="{at(middle[i]):.1f}" cy="{y}" r="4"/>'
        )
    bottom = _ROW * (len(chosen) + 2)
    ends = f'<text x="{_LEFT}" y="{bottom}">{first:.4g}</text>'
    ends += f'<text x="{_WIDTH - 20}" y="{bottom}" text-anchor="end">{last:.4g}</text>'
    size = f'viewBox="0 0 {_WIDTH} {bottom + 8}"'
    return f'<svg {size} role="img" aria-label="{html.escape(label)}">{"".join(rows)}{ends}</svg>'


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """Places of at most so many of ``n`` things, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))

"""Report page: one self-contained HTML file."""

from typing import Any

Content = dict[str, Any]  # plain values of a part of the page

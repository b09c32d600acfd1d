"""Report page: one self-contained HTML file; and how any page is made of a template, scripts and styles."""

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import Any

Content = dict[str, Any]  # plain values of a part of the page


def asset(name: str, package: str = "report") -> str:
    """Return the text of a file of a page."""
    return (files(f"dissensus.{package}") / "assets" / name).read_text(encoding="utf-8")


def joined_script(parts: Iterable[str]) -> str:
    """Return one script made of parts that share their names."""
    return "\n".join(['(() => {\n"use strict";', *parts, "})();\n"])


def source_hash(text: str) -> str:
    """Return the hash of a script or style for a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def fill(template: str, fields: Mapping[str, str]) -> str:
    """Fill a template in a single pass, so that placeholders in the data are left alone."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: fields[match[1]], template)

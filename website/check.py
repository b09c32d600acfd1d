"""Counts what `make docs` must show: pages, names without documentation, and what a page would fetch.

``python website/check.py site`` prints the counts and fails where one is not as it should be.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NO_SETTINGS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
FETCHED = re.compile(r"<(?:script|img|link|iframe)[^>]*?(?:src|href)=\"?(https?:)?//[^>]*>")


def public_things(module: str = "dissensus") -> Iterator[tuple[str, Any, list[str]]]:
    """Name, object and documentation (its own, and that of what it overrides) of all that is public."""
    package = importlib.import_module(module)
    for name in getattr(package, "__all__", ()):
        thing = getattr(package, name)
        if inspect.ismodule(thing):
            yield from public_things(thing.__name__)
        elif inspect.isclass(thing):
            yield name, thing, [inspect.getdoc(one) or "" for one in thing.__mro__[:1]]
            yield from _members(name, thing)
        elif inspect.isfunction(thing):
            yield name, thing, [inspect.getdoc(thing) or ""]


def _members(name: str, kind: type) -> Iterator[tuple[str, Any, list[str]]]:
    for member in sorted(set(dir(kind))):
        static = inspect.getattr_static(kind, member)
        known = isinstance(static, property | classmethod | staticmethod) or inspect.isfunction(static)
        if member.startswith("_") or not known:
            continue
        told = [inspect.getdoc(getattr(one, member, None)) or "" for one in kind.__mro__]
        found = static.fget if isinstance(static, property) else getattr(kind, member)
        yield f"{name}.{member}", found, told


def undocumented() -> list[str]:
    """Public names without documentation, and parameters without a meaning."""
    missing = []
    for name, thing, told in public_things():
        if not told[0].strip():
            missing.append(name)
        text = "\n".join(told)
        missing += [f"{name}({one})" for one in _parameters(thing) if not _explained(one, text)]
    return missing


def _parameters(thing: Any) -> list[str]:
    try:
        given = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in given if one.name not in ("self", "cls") and one.kind not in NO_SETTINGS]


def _explained(name: str, text: str) -> bool:
    """A line of a section is ``name``, ``name, other`` or ``name : rule``; prose has double back-ticks."""
    in_section = re.search(rf"^(?:\w+, )*{name}(?:, \w+)*(?: : .+)?$", text, re.M)
    return bool(in_section or re.search(rf"``[^`]*\b{name}\b[^`]*``", text))


def fetched(site: Path) -> list[str]:
    """What a page would load from elsewhere."""
    found = []
    for page in sorted(site.rglob("*.html")):
        found += [f"{page.name}: {one[0]}" for one in FETCHED.finditer(page.read_text(encoding="utf-8"))]
    return found


def main(site: str) -> None:
    """Print the counts; fail where a name has no documentation or a page would fetch something."""
    names = sum(1 for _ in public_things())
    missing, outside = undocumented(), fetched(Path(site))
    pages = len(list(Path(site).rglob("*.html")))
    print(f"{pages} pages; {names} public names and methods, {len(missing)} without documentation", end="; ")
    print(f"{len(outside)} things fetched from elsewhere")
    for line in [*missing, *outside]:
        print(f"  {line}")
    sys.exit(bool(missing or outside))


if __name__ == "__main__":
    main(*sys.argv[1:])

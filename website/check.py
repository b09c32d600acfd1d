"""Check the built site for undocumented public names and for pages that load anything from elsewhere.

``python website/check.py site`` prints the counts, and exits with 1 if there are any.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
EXTERNAL = re.compile(r"<(?:script|img|link|iframe)[^>]*?(?:src|href)=\"?(https?:)?//[^>]*>")


def public_things(module: str = "dissensus") -> Iterator[tuple[str, Any, list[str]]]:
    """Yield name, object and docstrings (also those of overridden methods) of everything public."""
    package = importlib.import_module(module)
    for name in getattr(package, "__all__", ()):
        thing = getattr(package, name)
        if inspect.ismodule(thing):
            yield from public_things(thing.__name__)
        elif inspect.isclass(thing):
            yield name, thing, [inspect.getdoc(thing) or ""]
            yield from _members(name, thing)
        elif inspect.isfunction(thing):
            yield name, thing, [inspect.getdoc(thing) or ""]


def _members(name: str, kind: type) -> Iterator[tuple[str, Any, list[str]]]:
    for member in sorted(set(dir(kind))):
        static = inspect.getattr_static(kind, member)
        is_method = isinstance(static, property | classmethod | staticmethod) or inspect.isfunction(static)
        if member.startswith("_") or not is_method:
            continue
        docstrings = [inspect.getdoc(getattr(base, member, None)) or "" for base in kind.__mro__]
        method = static.fget if isinstance(static, property) else getattr(kind, member)
        yield f"{name}.{member}", method, docstrings


def undocumented() -> list[str]:
    """Return public names without a docstring, and parameters that the docstring does not mention."""
    missing = []
    for name, thing, docstrings in public_things():
        if not docstrings[0].strip():
            missing.append(name)
        text = "\n".join(docstrings)
        missing += [
            f"{name}({parameter})" for parameter in _parameters(thing) if not _is_explained(parameter, text)
        ]
    return missing


def _parameters(thing: Any) -> list[str]:
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        parameter.name
        for parameter in parameters
        if parameter.name not in ("self", "cls") and parameter.kind not in VARIADIC
    ]


def _is_explained(name: str, text: str) -> bool:
    """Look for ``name``, ``name, other`` or ``name : rule`` in a section, or double back-ticks in prose."""
    in_section = re.search(rf"^(?:\w+, )*{name}(?:, \w+)*(?: : .+)?$", text, re.M)
    return bool(in_section or re.search(rf"``[^`]*\b{name}\b[^`]*``", text))


def fetched(site: Path) -> list[str]:
    """Return the elements of all pages that would be loaded from elsewhere."""
    return [
        f"{page.name}: {element[0]}"
        for page in sorted(site.rglob("*.html"))
        for element in EXTERNAL.finditer(page.read_text(encoding="utf-8"))
    ]


def main(site: str) -> None:
    """Print the counts; exit with 1 if a name is undocumented or a page loads something from elsewhere."""
    names = sum(1 for _ in public_things())
    missing, outside = undocumented(), fetched(Path(site))
    pages = len(list(Path(site).rglob("*.html")))
    print(f"{pages} pages; {names} public names and methods, {len(missing)} without documentation", end="; ")
    print(f"{len(outside)} elements loaded from elsewhere")
    for line in [*missing, *outside]:
        print(f"  {line}")
    sys.exit(bool(missing or outside))


if __name__ == "__main__":
    main(*sys.argv[1:])

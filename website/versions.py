"""Add a built site to those of earlier versions.

``python website/versions.py site pages`` copies the folder ``site`` to ``pages/<version>``, lists all
versions in ``pages/versions.json``, which the version menu reads, and redirects ``pages/index.html`` to the
newest.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(.*)")
_REDIRECT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>dissensus</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">dissensus {version}</a>
</html>
"""


def this_version() -> str:
    """Return the version of the package in this checkout."""
    text = (ROOT / "src" / "dissensus" / "_version.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.+)"', text)[0]


def published(pages: Path) -> list[str]:
    """Return the versions in the folder, newest first; 1.0.0rc1 is older than 1.0.0."""
    matches = [_VERSION.fullmatch(path.name) for path in pages.iterdir() if path.is_dir()]
    return [match[0] for match in sorted(filter(None, matches), key=_sort_key, reverse=True)]


def _sort_key(match: re.Match[str]) -> tuple[int, int, int, bool, str]:
    return int(match[1]), int(match[2]), int(match[3]), not match[4], match[4]


def newest(versions: list[str]) -> str:
    """Return the newest release, or the newest version if there is no release."""
    return next((version for version in versions if re.fullmatch(r"[\d.]+", version)), versions[0])


def add(site: Path, pages: Path, version: str) -> list[str]:
    """Copy the site of a version, replacing an earlier copy, and update the list of versions."""
    pages.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(pages / version, ignore_errors=True)
    shutil.copytree(site, pages / version)
    versions = published(pages)
    latest = newest(versions)
    listed = [{"version": name, "title": name, "aliases": ["latest"] * (name == latest)} for name in versions]
    (pages / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (pages / "index.html").write_text(_REDIRECT.format(version=latest), encoding="utf-8")
    (pages / ".nojekyll").touch()  # GitHub Pages serves the folder unchanged
    return versions


if __name__ == "__main__":
    print(*add(Path(sys.argv[1]), Path(sys.argv[2]), this_version()))

"""Puts a built site beside those of earlier versions.

``python website/versions.py site pages`` copies the folder ``site`` to ``pages/<version>``, lists all
versions in ``pages/versions.json``, from which each page offers them, and lets ``pages/index.html`` lead to
the newest. Nothing but the folder is needed, so it works without a network and without a server.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LATEST = "latest"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)(.*)")
_LEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>dissensus</title>
<meta http-equiv="refresh" content="0; url={version}/index.html">
<a href="{version}/index.html">dissensus {version}</a>
</html>
"""


def this_version() -> str:
    """The version of the package in this checkout."""
    text = (ROOT / "src" / "dissensus" / "_version.py").read_text(encoding="utf-8")
    return re.findall(r'__version__ = "(.+)"', text)[0]


def published(pages: Path) -> list[str]:
    """The versions in the folder, the newest first; 1.0.0rc1 comes before 1.0.0."""
    found = [(_VERSION.fullmatch(place.name), place) for place in pages.iterdir() if place.is_dir()]
    known = [match for match, _ in found if match]
    return [match[0] for match in sorted(known, key=_age, reverse=True)]


def _age(match: re.Match[str]) -> tuple[int, int, int, bool, str]:
    return int(match[1]), int(match[2]), int(match[3]), not match[4], match[4]


def newest(versions: list[str]) -> str:
    """The newest version that is a release; where there is none, the newest of all."""
    return next((one for one in versions if re.fullmatch(r"[\d.]+", one)), versions[0])


def add(site: Path, pages: Path, version: str) -> list[str]:
    """Copy the site of a version, replacing an earlier copy, and list all versions anew."""
    pages.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(pages / version, ignore_errors=True)
    shutil.copytree(site, pages / version)
    versions = published(pages)
    latest = newest(versions)
    listed = [{"version": one, "title": one, "aliases": [LATEST] * (one == latest)} for one in versions]
    (pages / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (pages / "index.html").write_text(_LEAD.format(version=latest), encoding="utf-8")
    (pages / ".nojekyll").touch()  # GitHub shall serve the folder as it is
    return versions


if __name__ == "__main__":
    print(*add(Path(sys.argv[1]), Path(sys.argv[2]), this_version()))

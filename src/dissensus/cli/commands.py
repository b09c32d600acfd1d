"""Every command, in the order in which help lists them; each module adds its own to the application."""

from __future__ import annotations

from dissensus.cli import describe, fit, report  # isort: skip
from dissensus.cli import annotators  # isort: skip
from dissensus.cli import select, recover  # isort: skip
from dissensus.cli import score  # isort: skip
from dissensus.cli import models  # isort: skip
from dissensus.cli import files, pack  # isort: skip
from dissensus.cli import simulate, demo  # isort: skip
from dissensus.cli import reproduce  # isort: skip
from dissensus.cli.app import app

__all__ = [
    "annotators",
    "app",
    "demo",
    "describe",
    "files",
    "fit",
    "models",
    "pack",
    "recover",
    "report",
    "reproduce",
    "score",
    "select",
    "simulate",
]

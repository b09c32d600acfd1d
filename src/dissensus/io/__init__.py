"""Every way in and out: tables, platform exports, written labels."""

from __future__ import annotations

from dissensus.io.read import read_annotations

__all__ = ["read_annotations"]

"""``python -m dissensus`` is the command line."""

from dissensus.cli import main

main()

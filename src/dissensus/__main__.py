"""The program ``dissensus``, also ``python -m dissensus``."""

import os
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]  # signal takes milliseconds


def main() -> None:
    """Run the program. Ctrl-C while Python imports it or shuts down is answered here, else by ``cli``."""
    signal(SIGINT, _exit)
    from dissensus.cli import main

    try:
        main()
    except KeyboardInterrupt:
        _exit()
    finally:
        if callable(getsignal(SIGINT)):  # it is ignored once a result is written
            signal(SIGINT, _exit)


def _exit(*signal: object) -> None:
    """Say that the command was interrupted, and end at once, whatever is running."""
    try:
        os.write(2, b"dissensus: interrupted; nothing was written\n")
    finally:
        os._exit(130)


if __name__ == "__main__":
    main()

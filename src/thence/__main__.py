"""Runs the command line: `python -m thence` is the same as `thence`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command; Ctrl-C also ends it while it is still being loaded."""
    try:
        from thence.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()

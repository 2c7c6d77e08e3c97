"""Runs the command line: `python -m thence` is the same as `thence`."""

from __future__ import annotations

from thence.cli.main import main

if __name__ == "__main__":
    main()

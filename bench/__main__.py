"""`./dev bench NAME [--quick] [--json]`: runs one bench; without a name, lists them."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys

import bench
from bench import harness


def main() -> None:
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(bench.__path__)
        if module.name not in ("harness", "__main__")
    )
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("name", nargs="?", choices=names)
    parser.add_argument(
        "--quick", action="store_true", help="fewer rounds, under a minute where the work allows"
    )
    parser.add_argument("--json", action="store_true", help="the last line is the figures as JSON")
    options = parser.parse_args()
    if options.name is None:
        for name in names:
            print(f"{name:12} {(importlib.import_module(f'bench.{name}').__doc__ or '').splitlines()[0]}")
        sys.exit(0)
    figures = importlib.import_module(f"bench.{options.name}").measure(quick=options.quick)
    harness.report(options.name, figures, as_json=options.json)


main()

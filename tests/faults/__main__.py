"""`./dev faults NAME [--long] [--seed N]`: one fault run; without a name, lists them."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import secrets

from tests import faults


def main() -> None:
    names = sorted(
        module.name
        for module in pkgutil.iter_modules(faults.__path__)
        if not module.name.startswith(("test_", "__"))
    )
    parser = argparse.ArgumentParser(prog="./dev faults")
    parser.add_argument("name", nargs="?", choices=names)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.name is None:
        for name in names:
            print(
                f"{name:12} {(importlib.import_module(f'tests.faults.{name}').__doc__ or '').splitlines()[0]}"
            )
        return
    module = importlib.import_module(f"tests.faults.{options.name}")
    seed = secrets.randbelow(1 << 32) if options.seed is None else options.seed
    print(f"faults {options.name}: seed {seed}", flush=True)
    figures = module.run(**(module.LONG if options.long else module.SHORT), seed=seed)
    print(json.dumps({"faults": options.name, "seed": seed, "figures": figures}))


main()

"""Fault runs: processes die, links break, disks fill, while an independent oracle watches.

Each module here has `run(*, rounds, seed) -> figures` and two sets of arguments, `SHORT` and `LONG`. The short ones
are part of `./dev test`; `./dev faults NAME --long` runs the long ones and can be repeated with `--seed`.
"""

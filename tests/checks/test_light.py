"""What starts often stays light: imports are counted, not timed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {
    "pyspark",
    "py4j",
    "pyarrow",
    "pandas",
    "psycopg",
    "uvloop",
    "httptools",
    "prometheus_client",
    "asyncio",
}


def modules_after(statement: str) -> set[str]:
    program = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_thence_imports_nothing_else() -> None:
    before, after = modules_after("pass"), modules_after("import thence")
    assert {name.partition(".")[0] for name in after - before} <= {"thence", "__future__"}


def test_the_command_line_imports_nothing_heavy_before_it_must() -> None:
    loaded = {name.partition(".")[0] for name in modules_after("import thence.cli.main")}
    assert not loaded & (HEAVY - {"asyncio"})
    assert not [name for name in modules_after("import thence.cli.main") if name.startswith("thence.service")]


@pytest.mark.parametrize("part", ["core.ports", "journal.log", "disk.durable", "web"])
def test_small_parts_import_nothing_heavy(part: str) -> None:
    loaded = {name.partition(".")[0] for name in modules_after(f"import thence.{part}")}
    assert not loaded & HEAVY


def test_running_everything_without_spark_does_not_import_spark() -> None:
    loaded = {
        name.partition(".")[0]
        for name in modules_after("import thence.service.wire, thence.cli.up, thence.servers.postgres")
    }
    assert not loaded & {"pyspark", "py4j", "pyarrow", "pandas", "psycopg"}

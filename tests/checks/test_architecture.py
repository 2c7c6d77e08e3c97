"""The import contracts hold, and each of them breaks the build when it is violated."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", tmp_path)
    return tmp_path


def lint(tree: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(
        command, cwd=tree, env={"PYTHONPATH": str(tree / "src")}, capture_output=True, text=True
    )


def plant(tree: Path, path: str, line: str) -> None:
    file = tree / "src" / "thence" / path
    file.parent.mkdir(exist_ok=True)
    if file.name != "__init__.py":
        (file.parent / "__init__.py").touch()
    with file.open("a") as opened:
        opened.write(f"\n{line}\n")


def test_the_tree_as_it_is_keeps_all_contracts(tree: Path) -> None:
    done = lint(tree)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


@pytest.mark.parametrize(
    ("path", "line", "says"),
    [
        (
            "engine/java.py",
            "from thence.servers import kafka",
            "thence.engine is not allowed to import thence.servers",
        ),
        (
            "journal/log.py",
            "import thence.engine.java",
            "thence.journal is not allowed to import thence.engine",
        ),
        ("core/types.py", "import pyspark", "thence.core is not allowed to import pyspark"),
        ("core/types.py", "import sqlite3", "thence.core is not allowed to import sqlite3"),
        (
            "core/graph.py",
            "from thence.disk import durable",
            "thence.core is not allowed to import thence.disk",
        ),
        ("service/wire.py", "import pyarrow", "Only engine knows Spark BROKEN"),
        (
            "service/wire.py",
            "import httptools",
            "stays with the server and the client, its event loop and codings with the server BROKEN",
        ),
        ("collect/parse.py", "import aio_pika", "Only the forwarder speaks to message brokers BROKEN"),
        ("service/wire.py", "import rich", "Only the command line talks to a terminal BROKEN"),
        ("engine/java.py", "import thence.testing", "The product does not import its test kit BROKEN"),
        ("misc/__init__.py", "VALUE = 1", "BROKEN"),
    ],
)
def test_a_violation_breaks_the_build(tree: Path, path: str, line: str, says: str) -> None:
    plant(tree, path, line)
    done = lint(tree)
    assert done.returncode != 0
    assert says in " ".join(done.stdout.split()), done.stdout


def test_broad_excepts_stand_at_a_boundary_and_say_so() -> None:
    for file in (ROOT / "src").rglob("*.py"):
        lines = file.read_text().splitlines()
        for number, line in enumerate(lines):
            if line.strip().startswith(("except Exception", "except BaseException", "except:")):
                near = " ".join(lines[number : number + 2])
                reraises = any(each.strip().startswith("raise") for each in lines[number : number + 8])
                assert "# boundary:" in near or reraises, f"{file}:{number + 1}"


def test_nothing_names_a_package_registry_or_this_machine() -> None:
    hosts = (
        "py" + "pi.org",
        "python" + "hosted",
        "npm" + "js.",
        "maven" + ".org",
        "crates" + ".io",
        "/ro" + "ot/",
        "/wo" + "rk/",
    )
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert listed
    for name in listed:
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        found = [host for host in hosts if host.encode() in content]
        assert not found, f"{name}: {found}"

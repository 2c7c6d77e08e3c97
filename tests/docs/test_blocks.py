"""What the documentation shows can be done: its commands run, its Python runs, its YAML is valid settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from thence.service import config

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[tuple[str, str]]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [(page.name, block) for page in PAGES for block in pattern.findall(page.read_text())]


def lines(prefix: str) -> list[str]:
    found = [line.partition("#")[0].strip() for _, block in blocks("sh") for line in block.splitlines()]
    return [line.removeprefix(prefix) for line in found if line.startswith(prefix)]


@pytest.mark.parametrize("line", lines(".venv/bin/thence "))
def test_commands_in_the_documentation_run(line: str, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    jars = ROOT / ".dev" / "jars"
    if jars.exists():
        (tmp_path / "state" / "jars").symlink_to(jars)
    command = [sys.executable, "-m", "thence", *line.split()]
    # Only the port is another than in the documentation: that one may be taken.
    environment = {**os.environ, "THENCE_COLLECT__LISTEN": "127.0.0.1:0"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("line", lines("./dev "))
def test_dev_commands_in_the_documentation_exist(line: str) -> None:
    usage = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True, check=True).stdout
    assert re.search(rf"^  ([a-z |]* )?{line.split(maxsplit=1)[0]}\b", usage, re.MULTILINE)


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_python_in_the_documentation_runs(page: str, block: str, tmp_path: Path) -> None:
    file = tmp_path / "test_block.py"
    file.write_text(block)
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(file)]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("page", "block"), [each for each in blocks("yaml") if "..." not in each[1]])
def test_settings_in_the_documentation_are_valid(page: str, block: str, tmp_path: Path) -> None:
    (tmp_path / "thence.yaml").write_text(block)
    variables = dict.fromkeys(re.findall(r"\$\{env\.(\w+)", block), "x")
    assert [str(each) for each in config.examine(tmp_path / "thence.yaml", {}, variables).problems] == []

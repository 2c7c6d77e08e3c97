"""The wheel holds what the product needs and nothing else, and runs in an environment that has nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from deploy.artefact import build

ROOT = Path(__file__).parents[2]
UV = ROOT / ".dev" / "uv" / "bin" / "uv"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    ours = ("THENCE_", "PYTHON", "VIRTUAL_ENV")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=clean, cwd=cwd)


def environment(directory: Path, wheel: Path, requirements: str) -> Path:
    venv = directory / "venv"
    for command in (
        (UV, "venv", "--quiet", "--python", sys.executable, venv),
        (
            UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            venv,
            "--require-hashes",
            "-r",
            ROOT / "requirements" / requirements,
        ),
        (UV, "pip", "install", "--quiet", "--python", venv, "--no-deps", wheel),
    ):
        done = run(*command)
        assert done.returncode == 0, done.stderr
    return venv / "bin" / "thence"


def test_the_wheel_holds_exactly_the_files_of_the_package(built: Path) -> None:
    listed = run(
        "git", "ls-files", "--cached", "--others", "--exclude-standard", "src", cwd=ROOT
    ).stdout.split()
    wanted = {name.removeprefix("src/") for name in listed if (ROOT / name).exists()}
    names = set(zipfile.ZipFile(built).namelist())
    assert {name for name in names if name.startswith("thence/")} == wanted
    assert all(name.startswith(("thence/", "thence-")) for name in names)
    assert {name.rsplit("/", 1)[1] for name in names if "/licenses/" in name} == {"LICENSE", "NOTICE"}
    assert {"thence/py.typed", "thence/web/static/index.html", "thence/engine/jars.lock"} <= names


def test_the_container_context_is_complete(built: Path) -> None:
    context = built.parent / "container"
    assert sorted(path.name for path in context.iterdir()) == [
        "Containerfile",
        "requirements.txt",
        built.name,
    ]
    assert "--hash=sha256:" in (context / "requirements.txt").read_text()


def test_everything_runs_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    thence = environment(tmp_path, built, "postgres.txt")
    done = run(thence, "up", "--once", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ready in" in done.stdout
    assert (tmp_path / "state" / "postgres" / "data").exists()


def test_a_missing_extra_says_the_line_to_type(built: Path, tmp_path: Path) -> None:
    thence = environment(tmp_path, built, "base.txt")
    for arguments, extra in (
        (("up", "--once", "--listen", "127.0.0.1:0"), "postgres"),
        (("engine", "check"), "spark"),
    ):
        done = run(thence, *arguments, cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert f"pip install 'thence[{extra}]'" in done.stderr
        assert "Traceback" not in done.stderr

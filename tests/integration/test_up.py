"""`thence up` as a person runs it: a process, its answers, its end, and what it says when it cannot start."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from thence.disk.claim import Claim

THENCE = (sys.executable, "-m", "thence")


class Running:
    def __init__(self, process: subprocess.Popen[str], url: str, log: Path) -> None:
        self.process = process
        self.url = url
        self.log = log

    def get(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        request = urllib.request.Request(self.url + path.lstrip("/"), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, dict(error.headers), error.read()

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@contextmanager
def up(state: Path, *arguments: str) -> Iterator[Running]:
    log = state.with_suffix(".log")
    command = [*THENCE, "--json", "--state", str(state), *arguments, "up", "--listen", "127.0.0.1:0"]
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        assert process.stdout is not None
        lines: list[dict[str, object]] = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if "url" in lines[-1]:
                break
        assert lines, log.read_text()
        assert "url" in lines[-1], log.read_text()
        yield Running(process, str(lines[-1]["url"]), log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with up(tmp_path_factory.mktemp("up") / "state") as running:
        yield running


def refused(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*THENCE, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.returncode in (1, 2, 75)
    assert "Traceback" not in done.stderr
    return done


def test_it_is_alive_and_ready_and_says_what_runs(running: Running) -> None:
    assert running.get("/healthz")[0] == 200
    status, _, body = running.get("/readyz")
    said = json.loads(body)
    assert (status, said["status"]) == (200, "ready")
    assert [(each["name"], each["phase"]) for each in said["services"]] == [
        ("PostgreSQL", "ready"),
        ("collector", "ready"),
        ("forwarders", "ready"),
        ("HTTP", "ready"),
    ]


def test_the_page_and_all_that_it_loads_are_there(running: Running) -> None:
    status, headers, body = running.get("/")
    assert status == 200
    assert b"<title>thence</title>" in body
    assert "default-src 'none'" in headers["content-security-policy"]
    for path in ("/style.css", "/page.js", "/icon.svg"):
        assert path.encode() in body
        assert running.get(path)[0] == 200


def test_metrics_tell_of_services_and_requests(running: Running) -> None:
    running.get("/nothing/here")
    text = running.get("/metrics")[2].decode()
    assert 'thence_service_ready{service="PostgreSQL"} 1.0' in text
    assert 'thence_http_requests_total{method="GET",route="other",status="404"}' in text
    assert (
        "application/openmetrics-text"
        in running.get("/metrics", Accept="application/openmetrics-text")[1]["content-type"]
    )


def test_a_trace_goes_through_to_answer_and_log(running: Running) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert running.get("/healthz", traceparent=parent)[1]["traceparent"] == parent
    assert running.get("/healthz", traceparent="nonsense")[1]["traceparent"] != "nonsense"
    assert len(running.get("/healthz")[1]["traceparent"]) == len(parent)


def test_wrong_paths_and_methods_are_told_what_is_right(running: Running) -> None:
    status, _, body = running.get("/nope")
    assert (status, json.loads(body)["error"]["code"]) == (404, "http.not_found")
    request = urllib.request.Request(running.url + "healthz", method="DELETE")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    assert (caught.value.code, caught.value.headers["allow"]) == (405, "GET, HEAD")
    caught.value.close()


def test_logs_are_json_off_a_terminal(running: Running) -> None:
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    assert {"service_starting", "service_ready"} <= {line["action"] for line in lines}
    credentials = json.loads((running.log.with_name("state") / "postgres" / "credentials.json").read_text())
    for secret in credentials.values():
        assert secret not in running.log.read_text()


def test_it_listens_on_loopback_only(running: Running) -> None:
    port = int(running.url.rsplit(":", 1)[1].strip("/"))
    with socket.socket() as probe:
        # Another address of this machine, which a server on 0.0.0.0 would answer.
        assert probe.connect_ex(("127.0.0.2", port)) != 0


def test_a_dead_postgres_makes_it_unready_until_it_is_back(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        pid = int((tmp_path / "state" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        seen = set()
        for _ in range(600):
            seen.add(running.get("/readyz")[0])
            fresh = tmp_path / "state" / "postgres" / "data" / "postmaster.pid"
            if (
                fresh.exists()
                and fresh.read_text().split()[:1] not in ([], [str(pid)])
                and running.get("/readyz")[0] == 200
            ):
                break
            time.sleep(0.05)
        assert running.get("/readyz")[0] == 200
        assert running.get("/healthz")[0] == 200


def test_sigterm_stops_in_order_and_leaves_nothing_running(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        pid = int((tmp_path / "state" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        assert running.stop() == 0
        assert not Path(f"/proc/{pid}").exists()
        actions = [json.loads(line) for line in running.log.read_text().splitlines()]
        stopped = [line["service"] for line in actions if line["action"] == "service_stopped"]
        assert stopped == ["HTTP", "forwarders", "collector", "PostgreSQL"]


def test_ctrl_c_stops_in_order_too(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        assert running.stop(signal.SIGINT) == 0


def test_a_second_sigterm_ends_it_at_once_and_the_next_start_is_well(tmp_path: Path) -> None:
    with up(tmp_path / "state") as running:
        pid = int((tmp_path / "state" / "postgres" / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)  # PostgreSQL cannot stop now, so an orderly end would take long
        try:
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert running.process.poll() is None
            assert running.stop() == 128 + signal.SIGTERM
        finally:
            os.kill(pid, signal.SIGCONT)
    with up(tmp_path / "state") as running:
        assert running.get("/readyz")[0] == 200


def test_killed_it_leaves_its_data_to_the_next(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with up(state) as running:
        running.stop(signal.SIGKILL)
    with up(state) as running:
        credentials = json.loads((state / "postgres" / "credentials.json").read_text())
        port = (state / "postgres" / "port").read_text().strip()
        dsn = f"postgresql://thence_store:{credentials['store']}@127.0.0.1:{port}/store"
        with psycopg.connect(dsn) as connection:
            assert connection.execute("select 1").fetchone() == (1,)


def test_a_taken_port_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = refused("--state", str(tmp_path / "s"), "up", "--listen", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert f"127.0.0.1:{port}" in done.stderr
    assert "http.listen" in done.stderr
    assert not (tmp_path / "s" / "postgres").exists()


def test_a_state_directory_with_an_owner_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    claim = Claim(tmp_path / "s")
    done = refused("--state", str(tmp_path / "s"), "up", "--listen", "127.0.0.1:0")
    claim.release()
    assert done.returncode == 75
    assert str(os.getpid()) in done.stderr


def test_a_full_disk_is_said_and_nothing_is_left_half_made(tmp_path: Path) -> None:
    command = [*THENCE, "--state", str(tmp_path / "disk" / "s"), "up", "--listen", "127.0.0.1:0"]
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=512k none "$0" && shift 0 && exec "$@"'
    unshare = shutil.which("unshare")
    assert unshare, "this test needs unshare (util-linux)"
    arguments = [
        unshare,
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        script,
        str(tmp_path / "disk"),
        *command,
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 75, done.stderr
    assert "state.full" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("colect: 1", "config.unknown_key"),
        ("state: [", "config.yaml"),
        ("store: {dsn: '${env.NOPE_X}'}", "config.missing_variable"),
    ],
)
def test_wrong_settings_start_nothing(tmp_path: Path, content: str, code: str) -> None:
    (tmp_path / "thence.yaml").write_text(content)
    done = refused("up", cwd=tmp_path)
    assert done.returncode == 2
    assert code in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["thence.yaml"]


def test_a_postgres_of_your_own_is_not_started_but_watched(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with up(tmp_path / "s", "--set", f"store.dsn=postgresql://me:hunter2@{address}/x") as running:
        status, _, body = running.get("/readyz")
        assert status == 503
        assert address in body.decode()
        assert "hunter2" not in body.decode() + running.log.read_text()
        assert not (tmp_path / "s" / "postgres").exists()


def test_once_shows_what_it_did_and_ends_well(tmp_path: Path) -> None:
    command = [*THENCE, "--state", str(tmp_path / "s"), "up", "--once", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for line in ("✓ PostgreSQL", "✓ HTTP", "ready in", "page", "■ PostgreSQL"):
        assert line in done.stdout


def test_once_fails_when_not_everything_is_well(tmp_path: Path) -> None:
    command = [*THENCE, "--state", str(tmp_path / "s"), "--set", "store.dsn=postgresql://u:p@127.0.0.1:1/d"]
    command += ["up", "--once", "--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert "service.not_ready" in done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_once_fails_when_it_is_interrupted_before_it_is_ready(tmp_path: Path) -> None:
    command = [*THENCE, "--state", str(tmp_path / "s"), "up", "--once", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "s" / "postgres").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 3

"""What deploy/ says is run as it stands there: systemd's part and the kubelet's are played by the test."""

from __future__ import annotations

import http.client
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
SECONDS = 60


def started(arguments: list[str], **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "thence", "--set", "collect.listen=127.0.0.1:0", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def test_a_notified_systemd_sees_it_start_and_stop(tmp_path: Path):
    unit = (DEPLOY / "systemd" / "thence-collect.service").read_text()
    line = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert line is not None
    arguments = [word.replace("/etc/thence", str(DEPLOY / "systemd")) for word in shlex.split(line[1])[1:]]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "n"))
        process = started(arguments, NOTIFY_SOCKET=str(tmp_path / "n"), THENCE_STATE=str(tmp_path / "state"))
        try:
            systemd.settimeout(SECONDS)
            assert systemd.recv(4096) == b"READY=1"
            assert not select.select([systemd], [], [], 0)[0]
            process.send_signal(signal.SIGTERM)
            assert systemd.recv(4096) == b"STOPPING=1"
            _, errors = process.communicate(timeout=SECONDS)
        finally:
            process.kill()
            process.communicate()
    assert process.returncode == 0, errors


@pytest.mark.parametrize("probe", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_the_probes_of_the_sidecar_are_answered(tmp_path: Path, probe: str):
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / "sidecar.yaml").read_text())
    pod = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]["spec"]
    container = pod["initContainers"][0]
    arguments = [word.replace("0.0.0.0:8080", "127.0.0.1:0") for word in container["args"]]
    process = started(arguments, THENCE_STATE=str(tmp_path / "state"))
    alarm = threading.Timer(SECONDS, process.kill)
    alarm.start()
    try:
        assert process.stdout is not None
        # The environment has nothing that makes Python write at once, so this is also what a pipe sees.
        address = next(
            found[1] for line in process.stdout if (found := re.search(r"page +http://(.*)/", line))
        )
        connection = http.client.HTTPConnection(address, timeout=SECONDS)
        connection.request("GET", container[probe]["httpGet"]["path"])
        assert connection.getresponse().status == 200
        connection.close()
    finally:
        alarm.cancel()
        process.kill()
        process.communicate()

"""What stands in deploy/ agrees with the product: commands, options, paths, ports, times."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from thence.service import config
from thence.service.lifecycle import STOP_SECONDS
from thence.service.settings import Address, Settings
from thence.service.wire import sidecar

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "thence-collect.service"


class Unit(configparser.ConfigParser):
    def optionxform(self, optionstr: str) -> str:
        return optionstr


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    unit = Unit(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    unit.read(UNIT)
    assert unit.sections() == ["Unit", "Service", "Install"]
    return dict(unit["Service"])


@pytest.fixture(scope="module")
def documents() -> dict[str, Any]:
    text = (DEPLOY / "kubernetes" / "sidecar.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def pod(documents: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = documents["Deployment"]["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod["initContainers"] if each["name"] == "thence")
    return found


def is_taken(*arguments: str) -> bool:
    """Whether the command line knows these; all options are read before `--help` answers."""
    command = [sys.executable, "-m", "thence", *arguments, "--help"]
    return subprocess.run(command, capture_output=True).returncode == 0


def listens(arguments: list[str]) -> Address:
    return Address(arguments[arguments.index("--listen") + 1])


def test_what_the_command_line_does_not_know_is_seen():
    assert not is_taken("collect", "--listne", "127.0.0.1:0")
    assert not is_taken("colect")


def test_the_unit_runs_a_command_that_there_is(service: dict[str, str]):
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).is_absolute()
    assert Path(program).name == "thence"
    assert "collect" in arguments
    assert is_taken(*arguments)
    assert shlex.split(service["ExecReload"]) == ["/bin/kill", "-HUP", "$MAINPID"]


def test_the_unit_keeps_its_state_where_it_may_write(service: dict[str, str]):
    assert service["ProtectSystem"] == "strict"
    assert service["Environment"] == f"THENCE_STATE=/var/lib/{service['StateDirectory']}"


def test_the_unit_waits_for_what_it_is_told(service: dict[str, str]):
    assert service["Type"] == "notify"
    assert int(service["TimeoutStopSec"]) > STOP_SECONDS
    assert service["KillMode"] == "mixed"
    assert service["Restart"] == "on-failure"


def test_the_settings_beside_the_unit_are_right():
    found = config.load(DEPLOY / "systemd" / "thence.yaml", {}, {})
    assert found.settings.forward["marquez"].type == "marquez"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path):
    copy = tmp_path / UNIT.name
    # It looks whether the program is there.
    copy.write_text(UNIT.read_text().replace("/opt/thence/thence", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, ours) == (0, [])


def test_the_sidecar_runs_a_command_that_there_is(container: dict[str, Any]):
    assert container["args"][0] == "collect"
    assert is_taken(*container["args"])


def test_the_probes_ask_what_is_answered_where_it_listens(container: dict[str, Any], tmp_path: Path):
    address = listens(container["args"])
    assert address.host == "0.0.0.0"  # probes do not come from inside
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert address.port in ports.values()
    routes = sidecar(Settings(), tmp_path, Settings, lambda status: None)._routes(Settings())
    for probe, path in (("liveness", "/healthz"), ("readiness", "/readyz"), ("startup", "/readyz")):
        asked = container[f"{probe}Probe"]["httpGet"]
        assert asked["path"] == path
        assert ports[asked["port"]] == address.port
        assert "GET" in routes[path]


def test_the_application_sends_to_the_sidecar(pod: dict[str, Any], container: dict[str, Any]):
    (application,) = pod["containers"]
    environment = {each["name"]: each["value"] for each in application["env"]}
    assert environment["OPENLINEAGE_URL"] == f"http://127.0.0.1:{listens(container['args']).port}"


def test_the_sidecar_may_write_its_state_and_nothing_else(
    documents: dict[str, Any], pod: dict[str, Any], container: dict[str, Any]
):
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    (mount,) = container["volumeMounts"]
    state = next(each["value"] for each in container["env"] if each["name"] == "THENCE_STATE")
    assert Path(state).is_relative_to(mount["mountPath"])
    (volume,) = pod["volumes"]
    assert volume["name"] == mount["name"]
    claim = documents["PersistentVolumeClaim"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    room = int(claim["spec"]["resources"]["requests"]["storage"].removesuffix("Gi")) << 30
    assert room > Settings().journal.lineage.max_bytes.size_bytes
    assert documents["Deployment"]["spec"]["strategy"]["type"] == "Recreate"


def test_the_pod_waits_until_the_sidecar_has_stopped(pod: dict[str, Any], container: dict[str, Any]):
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > before + STOP_SECONDS
    assert container["restartPolicy"] == "Always"
    assert {"requests", "limits"} <= set(container["resources"])


@pytest.mark.parametrize("name", ["Containerfile", "Containerfile.collect"])
def test_an_image_runs_a_command_that_there_is_as_the_user_of_the_pod(name: str, pod: dict[str, Any]):
    text = (DEPLOY / name).read_text()
    words = re.findall(r"^(?:ENTRYPOINT|CMD) \[(.*)\]$", text, re.MULTILINE)
    program, *arguments = [word.strip(' "') for line in words for word in line.split(",")]
    assert Path(program).name == "thence"
    assert is_taken(*arguments)
    assert f"EXPOSE {listens(arguments).port}" in text
    assert f"--uid {pod['securityContext']['runAsUser']} thence" in text
    assert "\nUSER thence\n" in text

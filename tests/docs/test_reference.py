"""The documentation says what there is: every command, setting, metric, error code, log action, route and promise."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import pytest
import typer.main

from thence.cli.main import app
from thence.core import errors
from thence.http.counters import Counters
from thence.service import config
from thence.service.collector import Collector
from thence.service.forward import Forwarding
from thence.service.forward_settings import ForwardSettings
from thence.service.metrics import Metrics
from thence.service.section import Section
from thence.service.settings import Settings
from thence.service.wire import Process

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
SUBCLASSES = {"Misconfigured", "Busy"}
ERRORS = (
    SUBCLASSES
    | {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    | {"Busy", "Misconfigured", "Parked"}
)  # the forwarder's own


def calls() -> Iterator[ast.Call]:
    for file in sorted((ROOT / "src").rglob("*.py")):
        if "testing" not in file.parts:
            yield from (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "id", getattr(call.func, "attr", ""))


def documented(page: str) -> set[str]:
    """The first cell of each row of the tables of a page."""
    rows = re.findall(r"^\| (`[^|]+`) ", (DOCS / page).read_text(), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def code_of(call: ast.Call) -> ast.expr | None:
    """Where the code of an error stands: first in our exceptions, after the status in an HTTP refusal."""
    name = name_of(call)
    if name in ERRORS - {"ThenceError", "Violation"}:
        return call.args[0] if call.args else None
    return call.args[1] if name == "refusal" and len(call.args) > 1 else None


def test_every_error_code_is_explained_and_no_other() -> None:
    codes = {code.value for call in calls() if isinstance(code := code_of(call), ast.Constant)}
    assert len(codes) > 50
    assert documented("errors.md") == codes


def test_every_error_code_is_a_literal() -> None:
    found = [call for call in calls() if name_of(call) in ERRORS - {"ThenceError", "Violation"}]
    dynamic = [ast.unparse(call) for call in found if not isinstance(code_of(call), ast.Constant)]
    assert dynamic == ["InvalidEvent(code, message, advice=advice, violations=violations)"]  # unpickling


def test_every_log_action_is_listed_and_no_other() -> None:
    actions: set[str] = set()
    for file in sorted((ROOT / "src").rglob("*.py")):
        actions |= set(re.findall(r"\"action\": \"([a-z_]+)\"", file.read_text()))
        actions |= set(re.findall(r"_about\(\s*\"([a-z_]+)\"", file.read_text()))
    actions |= {f"service_{phase}" for phase in ("starting", "ready", "failed", "stopping", "stopped")}
    assert documented("reference/logs.md") == actions


def test_every_route_is_documented(tmp_path: Path) -> None:
    text = (DOCS / "reference" / "http.md").read_text()
    for path in Process(Settings(), tmp_path).api.document()["paths"]:
        assert f"{path}`" in text, path


def keys(section: type[Section], path: str = "") -> Iterator[str]:
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, Section):
            yield from keys(field.type, f"{path}{field.name}.")
        else:
            yield path + field.name


def test_every_setting_is_documented_with_its_default() -> None:
    assert documented("reference/settings.md") == set(keys(Settings))
    text = (DOCS / "reference" / "settings.md").read_text()
    for key, value in config.shown(Settings()).items():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{key}` "))
        default = row.split("|")[2].strip(" `")
        if value is not None:
            assert default.removeprefix("./") == (
                str(value).lower() if isinstance(value, bool) else str(value)
            ), key


def test_every_setting_of_a_destination_is_documented() -> None:
    assert set(ForwardSettings.__struct_fields__) == documented("forwarding.md")


def commands(command: click.Command, path: str = "thence") -> Iterator[tuple[str, click.Command]]:
    subcommands = getattr(command, "commands", None)
    if subcommands is None:
        yield path, command
        return
    for name, below in subcommands.items():
        yield from commands(below, f"{path} {name}")


def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "reference" / "commands.md").read_text()
    found = dict(commands(typer.main.get_command(app)))  # type: ignore[arg-type] # typer carries its own click
    assert set(re.findall(r"^## `(thence [^`]+)`", text, re.MULTILINE)) == set(found)
    for path, command in found.items():
        section = text.split(f"## `{path}`")[1].split("\n## ")[0]
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--") and option not in ("--help", "--json"):
                    assert f"`{option}" in section, f"{path} {option}"


def test_every_metric_is_documented(tmp_path: Path) -> None:
    collector = Collector(Settings(), tmp_path)
    collector.start()
    try:
        collector.parts.journal.cursor("some")
        forwarding = Forwarding({"some": ForwardSettings(type="stdout")}, collector)
        text = Metrics(Counters(), collector, forwarding).render("", ())[0].decode()
    finally:
        collector.stop()
    names = set(re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE))
    ours = {name for name in names if name.startswith("thence_") and not name.endswith("_created")}
    assert documented("reference/metrics.md") - {"process_*"} >= ours
    assert {name for name in documented("reference/metrics.md") if name.startswith("thence_")} <= ours


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in DOCS.rglob("*.md"):
        assert str(page.relative_to(DOCS)) in navigation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if not re.match(r"[a-z]+:", target):
            assert (page.parent / target).exists(), target


def test_every_promise_names_a_test_that_exists() -> None:
    text = (DOCS / "guarantees.md").read_text()
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(tests) > 15
    for path, name in tests:
        assert f"def {name}" in (ROOT / path).read_text() or f"class {name}" in (ROOT / path).read_text(), (
            f"{path}::{name}"
        )

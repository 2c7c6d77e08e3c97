"""Settings: precedence, references, suggestions, and that secrets stay hidden."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from thence.core.errors import ConfigError
from thence.service import config
from thence.service.config import Config
from thence.service.settings import Settings


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def write(text: str, name: str = "thence.yaml") -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def read(text: Path | None = None, environment: Mapping[str, str] | None = None, **flags: object) -> Config:
    return config.load(
        text, {key.replace("__", "."): value for key, value in flags.items()}, environment or {}
    )


def problem(
    file: Path | None = None, environment: Mapping[str, str] | None = None, **flags: object
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read(file, environment, **flags)
    return caught.value


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(write):
    file = write("collect: {listen: '127.0.0.1:1'}\nlog: {level: debug}\n")
    environment = {"THENCE_COLLECT__LISTEN": "127.0.0.1:2", "THENCE_STORE__PORT": "7"}
    found = read(file, environment, collect__listen="127.0.0.1:3")
    assert found.settings.collect.listen == "127.0.0.1:3"
    assert found.settings.log.level == "debug"
    assert found.settings.store.port == 7
    assert found.settings.spark.master == "local[*]"
    assert read(file, environment).settings.collect.listen == "127.0.0.1:2"
    assert read(file).settings.collect.listen == "127.0.0.1:1"


def test_each_value_knows_its_origin(write):
    file = write("# first\nlog:\n  level: debug\n")
    origins = read(file, {"THENCE_STORE__PORT": "7"}, spark__master="local[1]").origins
    assert origins["log.level"] == f"{file}:3"
    assert origins["store.port"] == "THENCE_STORE__PORT"
    assert origins["spark.master"] == "--set spark.master"
    assert origins["collect.listen"] == "default"


def test_the_file_in_the_current_folder_is_read_by_itself(write):
    write("log: {level: warning}")
    assert read().settings.log.level == "warning"


def test_a_missing_file_is_only_an_error_when_it_was_named(write, tmp_path):
    assert read().settings.log.level == "info"
    assert problem(tmp_path / "no.yaml").code == "config.unreadable"
    assert problem(None, {"THENCE_CONFIG": str(tmp_path / "no.yaml")}).code == "config.unreadable"


@pytest.mark.parametrize(
    ("text", "code", "says", "advises"),
    [
        ("colect: {listen: x}", "config.unknown_key", "colect", "Did you mean 'collect'?"),
        ("collect: {lisen: x}", "config.unknown_key", "collect.lisen", "Did you mean 'collect.listen'?"),
        ("zzzzz: 1", "config.unknown_key", "zzzzz", "Known: state, collect"),
        ("log: {level: loud}", "config.wrong_value", "'loud'", "settings.md"),
        ("log: loud", "config.wrong_value", "log: 'loud'", "settings.md"),
        ("store: {port: '7'}", "config.wrong_value", "store.port: '7'", "settings.md"),
        ("collect: {listen: nowhere}", "config.wrong_value", "127.0.0.1:8080", "settings.md"),
        ("collect: {listen: 'x:70000'}", "config.wrong_value", "x:70000", "settings.md"),
        ("collect: [1", "config.yaml", ":1: not valid YAML", "indentation"),
        (
            "collect: {lineage: {keys: [{id: a, ky: x}]}}",
            "config.unknown_key",
            "keys.0.ky",
            "'collect.lineage.keys.0.key'",
        ),
        ("collect: {lineage: {keys: [{id: a}]}}", "config.missing_key", "key must be set", "settings.md"),
        ("collect: {lineage: {keys: [a]}}", "config.unknown_key", "collect.lineage.keys.0", "Known"),
        ("collect: &a {lineage: *a}", "config.yaml", "leads to itself", "plainly"),
        ("state: ~no-such-user/x", "config.wrong_value", "state", "settings.md"),
        ("forward: []", "config.wrong_value", "forward", "settings.md"),
        ("store: {dsn: 'http://x/'}", "config.contradiction", "store.dsn", "settings.md"),
        ("store: {dsn: 'postgresql://h:abc/x'}", "config.contradiction", "store.dsn", "settings.md"),
        ("store: {port: 70000}", "config.wrong_value", "70000", "settings.md"),
        ("store: {dsn: 'file:/dev/zero'}", "config.secret_file", "no regular file", "may read"),
        ("journal: {lineage: {max_bytes: 100}}", "config.contradiction", "max_bytes", "settings.md"),
        ("- a\n- b", "config.yaml", "holds no keys", "key: value"),
        ("log: {level: info}\nlog: {level: debug}", "config.duplicate_key", ":2: the key 'log'", "Remove"),
        ("log: {level: !!python/name:os.system x}", "config.yaml", "not valid YAML", "Correct"),
        ("store: {dsn: '${env.ABSENT}'}", "config.missing_variable", "ABSENT", "default"),
        ("store: {dsn: 'file:absent'}", "config.secret_file", "absent", "may read"),
    ],
)
def test_what_is_wrong_is_said_with_place_value_and_advice(write, text, code, says, advises):
    found = problem(write(text))
    assert found.code == code
    assert says in found.message
    assert advises in found.advice
    assert found.exit_code == 2


def test_unknown_names_in_environment_and_flags_are_refused_too():
    assert problem(None, {"THENCE_COLLECT__LISEN": "x"}).advice == "Did you mean 'collect.listen'?"
    assert problem(spark__mastr="x").advice == "Did you mean 'spark.master'?"


def test_all_problems_are_found_in_one_pass(write):
    found = config.examine(write("colect: 1\nlog: {level: loud, formt: x}\nstore: {dsn: '${env.A}'}"), {}, {})
    assert [each.code for each in found.problems] == [
        "config.unknown_key",
        "config.missing_variable",
        "config.unknown_key",
        "config.wrong_value",
    ]


def test_references_to_the_environment_may_have_a_default(write):
    file = write("collect: {listen: '${env.HOST|127.0.0.1}:${env.PORT|9}'}")
    assert read(file, {"PORT": "10"}).settings.collect.listen == "127.0.0.1:10"
    assert read(file).settings.collect.listen == "127.0.0.1:9"


def test_a_secret_may_stand_in_a_file_beside_the_settings(write, tmp_path, monkeypatch):
    write("postgresql://me:hunter2@db/x\n", "dsn")
    file = write("store: {dsn: 'file:dsn'}")
    monkeypatch.chdir("/")
    dsn = read(file).settings.store.dsn
    assert dsn is not None
    assert dsn.reveal() == "postgresql://me:hunter2@db/x"


def test_secrets_show_nowhere(write):
    file = write(
        "store: {dsn: 'postgresql://me:hunter2@db'}\nspark: {conf: {fs.s3a.secret.key: hunter2, a: b}}"
    )
    found = read(file)
    shown = config.shown(found.settings)
    assert shown["store.dsn"] == "**********"
    assert shown["spark.conf.fs.s3a.secret.key"] == "**********"
    assert shown["spark.conf.a"] == "b"
    dsn = found.settings.store.dsn
    assert "hunter2" not in f"{dsn!r} {dsn} {dsn:>20} {found.settings.store!r} {json.dumps(shown)}"


def test_a_wrong_secret_is_not_printed_either(write):
    found = problem(write("store: {dsn: [hunter2]}"))
    assert "hunter2" not in found.message


def test_secrets_in_lists_are_read_and_hidden(write):
    file = write(
        "collect: {lineage: {keys: [{id: a, key: '${env.KEY}'}, {id: b, key: hunter2, role: read}]}}"
    )
    found = read(file, {"KEY": "hunter3"})
    assert [(key.id, key.key.reveal(), key.role) for key in found.settings.collect.lineage.keys] == [
        ("a", "hunter3", "write"),
        ("b", "hunter2", "read"),
    ]
    assert "hunter" not in repr(found) + json.dumps(config.shown(found.settings))
    wrong = problem(write("collect: {lineage: {keys: [{id: a, key: [hunter2]}]}}"))
    assert "hunter" not in str(wrong)


def test_what_is_wrong_with_secrets_is_said_without_them(write):
    for text in (
        "collect: {lineage: {keys: hunter2}}",
        "spark: {conf: [hunter2]}",
        "forward: {a: {token: [hunter2]}}",
    ):
        assert "hunter2" not in str(problem(write(text)))
    shown = config.shown(read(write("spark: {conf: {fs.azure.account.key.x: hunter2}}")).settings)
    assert "hunter2" not in json.dumps(shown)
    shown = config.shown(
        read(write("forward: {a: {url: 'https://me:hunter2@x/?token=hunter2&b=1'}}")).settings
    )
    assert "hunter2" not in json.dumps(shown)


def test_a_service_of_our_name_in_a_cluster_is_no_setting():
    names = ("THENCE_SERVICE_HOST", "THENCE_SERVICE_PORT_HTTP", "THENCE_PORT", "THENCE_PORT_8080_TCP_ADDR")
    assert read(None, dict.fromkeys(names, "tcp://10.0.0.1:8080")).settings == read().settings


def test_references_are_read_as_what_they_become(write):
    file = write("store: {port: '${env.PGPORT|5432}'}\nmetrics: {prometheus: '${env.M|false}'}")
    assert (read(file).settings.store.port, read(file).settings.metrics.prometheus) == (5432, False)


def test_sections_by_name_and_keys_with_dots_can_be_set_from_everywhere():
    found = read(None, {"THENCE_FORWARD__bus__TYPE": "stdout"}, spark__conf__spark__x__y="3").settings
    assert found.forward["bus"].type == "stdout"
    assert found.spark.conf == {"spark.x.y": "3"}


def test_maps_take_keys_from_all_layers(write):
    file = write("spark: {conf: {spark.a: '1', spark.b: '2'}}")
    found = config.load(file, {}, {"THENCE_SPARK__CONF__spark.b": "3", "THENCE_SPARK__CONF__spark.C": "4"})
    assert found.settings.spark.conf == {"spark.a": "1", "spark.b": "3", "spark.C": "4"}


def test_a_section_with_nothing_in_it_is_fine(write):
    assert read(write("collect:\nlog: {}\n")).settings == read().settings


def test_the_schema_names_every_section():
    made = config.schema()
    assert set(made["$defs"]["Settings"]["properties"]) == set(Settings.__struct_fields__)
    json.dumps(made)

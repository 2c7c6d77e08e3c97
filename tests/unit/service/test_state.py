"""The state directory has one owner and one format."""

from __future__ import annotations

import json
import os

import pytest

from thence.core.errors import ConfigError, Rejected, Unavailable
from thence.disk import durable
from thence.service.state import StateDirectory


def test_a_second_owner_is_refused_and_told_who_has_it(tmp_path):
    with StateDirectory(tmp_path / "s"):
        with (
            pytest.raises(Unavailable, match=f"process {os.getpid()}") as caught,
            StateDirectory(tmp_path / "s"),
        ):
            pass
        assert caught.value.code == "state.owned"
    with StateDirectory(tmp_path / "s"):
        pass


def test_a_directory_of_a_newer_format_is_left_alone(tmp_path):
    mark = tmp_path / "format.json"
    mark.write_text(json.dumps({"format": 99}))
    with pytest.raises(ConfigError, match="format 99") as caught, StateDirectory(tmp_path):
        pass
    assert caught.value.code == "state.newer"
    assert json.loads(mark.read_text()) == {"format": 99}


@pytest.mark.parametrize("content", ["", "{}", "[]", "nonsense", '{"format": "x"}'])
def test_a_damaged_mark_is_not_guessed_about(tmp_path, content):
    (tmp_path / "format.json").write_text(content)
    with pytest.raises(Rejected) as caught, StateDirectory(tmp_path):
        pass
    assert caught.value.code == "state.damaged"


def test_a_path_that_is_a_file_is_said_so(tmp_path):
    (tmp_path / "s").write_text("x")
    with pytest.raises(ConfigError) as caught, StateDirectory(tmp_path / "s"):
        pass
    assert caught.value.code == "state.unwritable"


def test_others_on_the_machine_cannot_look_in(tmp_path):
    with StateDirectory(tmp_path / "s") as state:
        assert state.path.stat().st_mode & 0o077 == 0


def test_a_durable_write_replaces_the_whole_file(tmp_path):
    durable.write(tmp_path / "f", b"long content")
    durable.write(tmp_path / "f", b"short")
    assert (tmp_path / "f").read_bytes() == b"short"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]

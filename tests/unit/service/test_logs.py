"""Logs are JSON where no person looks, and carry action and trace."""

from __future__ import annotations

import io
import json
import logging

import pytest

from thence.http.trace import trace_id
from thence.service import logs
from thence.service.settings import LogSettings


@pytest.fixture
def root():
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield root
    root.handlers[:], level = before[0], before[1]
    root.setLevel(level)
    logging.captureWarnings(capture=False)


def test_a_record_is_one_json_object_with_its_action(root):
    stream = io.StringIO()
    logs.configure(LogSettings(), stream)
    token = trace_id.set("abc")
    logging.getLogger("thence.x").info("done %s", "it", extra={"action": "test_done", "count": 3})
    trace_id.reset(token)
    line = json.loads(stream.getvalue())
    assert (line["message"], line["action"], line["count"]) == ("done it", "test_done", 3)
    assert (line["level"], line["logger"], line["trace_id"]) == ("info", "thence.x", "abc")
    assert line["at"].endswith("+00:00")


def test_an_exception_stays_on_its_line(root):
    stream = io.StringIO()
    logs.configure(LogSettings(format="json"), stream)
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("thence.x").exception("bad", extra={"action": "test_bad"})
    assert len(stream.getvalue().splitlines()) == 1
    assert "ValueError" in json.loads(stream.getvalue())["exception"]


def test_text_is_readable(root):
    stream = io.StringIO()
    logs.configure(LogSettings(format="text", level="warning"), stream)
    logging.getLogger("thence.x").info("not shown")
    logging.getLogger("thence.x").warning("shown", extra={"action": "test_shown"})
    assert stream.getvalue().rstrip().endswith("warning shown  action=test_shown")
    assert "not shown" not in stream.getvalue()

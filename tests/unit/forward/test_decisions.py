from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.forward import verdict
from thence.forward.breaker import Breaker
from thence.forward.connection import Answer
from thence.forward.failure import Busy, Misconfigured
from thence.forward.http import HttpBackend, HttpTarget
from thence.forward.parking import letter_id
from thence.forward.policy import Policy
from thence.forward.sigv4 import AwsKeys, AwsSigner
from thence.forward.webhook import Signer, signature
from thence.forward.wire import Origin
from thence.testing.clock import ManualClock
from thence.testing.contracts.samples import event, identifier

NOW = datetime(2024, 2, 29, 12, 0, 0, tzinfo=UTC)
ORIGIN = Origin.of("https://backend.example")
GONE = Unavailable("x", "gone")


def test_delays_grow_with_full_jitter_and_end_at_the_longest() -> None:
    longest = [0.0] * 20
    for seed in range(300):
        breaker = Breaker(Policy(), random.Random(seed))
        for index in range(20):
            delay = breaker.fail(GONE)
            assert 0.1 <= delay <= min(30.0, 0.1 * 2 ** (index + 1))
            longest[index] = max(longest[index], delay)
    assert longest[0] > 0.15
    assert longest[19] > 25.0


def test_a_destinations_own_delay_counts_if_it_is_longer() -> None:
    breaker = Breaker(Policy(longest_retry_after_seconds=100.0))
    assert breaker.fail(Busy("x", "busy").after(50.0)) == 50.0
    assert breaker.fail(Busy("x", "busy").after(5000.0)) == 100.0


def test_an_open_outcome_is_tried_again_at_once_and_then_no_more() -> None:
    breaker = Breaker(Policy())
    assert breaker.fail(OutcomeUnknown("x", "unknown")) == 0.0
    assert breaker.fail(OutcomeUnknown("x", "unknown")) >= 0.1
    breaker.succeed()
    assert breaker.fail(OutcomeUnknown("x", "unknown")) == 0.0


def test_what_somebody_must_repair_is_tried_slowly() -> None:
    assert Breaker(Policy()).fail(Misconfigured("x", "wrong key")) == 30.0
    assert Breaker(Policy()).fail(None) == 30.0


def test_the_breaker_opens_after_failures_in_a_row_and_closes_by_a_success() -> None:
    breaker = Breaker(Policy(breaker_failures=3))
    states = [breaker.state]
    for _ in range(3):
        breaker.fail(GONE)
        states.append(breaker.state)
    breaker.is_waiting = True
    states.append(breaker.state)
    breaker.succeed()
    states.append(breaker.state)
    assert states == ["closed", "closed", "closed", "half_open", "open", "closed"]


@pytest.mark.parametrize(
    ("status", "raises"),
    [
        *((status, Busy) for status in (408, 425, 429, 500, 502, 503, 504, 507)),
        *((status, Misconfigured) for status in (301, 302, 307, 308, 401, 403, 404, 405, 407)),
    ],
)
def test_answers_that_are_no_events_fault_raise(status: int, raises: type[Exception]) -> None:
    with pytest.raises(raises):
        verdict.check(Answer(status, {}, b""), ORIGIN, NOW)


@pytest.mark.parametrize("status", [400, 406, 409, 410, 413, 415, 422])
def test_other_answers_refuse_the_event_with_an_excerpt(status: int) -> None:
    answer = Answer(status, {}, b"because\n of   this" + b"!" * 10_000)
    verdict.check(answer, ORIGIN, NOW)
    refusal = verdict.refusal_in(answer)
    assert refusal is not None
    assert refusal.startswith(f"HTTP {status}: because of this!")
    assert len(refusal) < 400
    assert verdict.refusal_in(Answer(201, {}, b"")) is None


def test_both_forms_of_retry_after_are_understood() -> None:
    later = (NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert verdict.retry_after({"retry-after": "120"}, NOW) == 120.0
    assert verdict.retry_after({"retry-after": later}, NOW) == 90.0
    assert verdict.retry_after({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}, NOW) == 0.0
    for nonsense in ("", "soon", "-5", "1e9", "\u0664"):
        assert verdict.retry_after({"retry-after": nonsense}, NOW) is None


def test_verdicts_of_a_batch() -> None:
    body = b"""{"status": "partial_success", "summary": {"received": 3}, "failed_events":
      [{"index": 1, "reason": "bad", "retriable": false},
       {"index": 2, "reason": "", "retriable": true}, {"index": 9}]}"""
    assert verdict.verdicts_in(Answer(204, {}, b""), 3) == {}
    assert verdict.verdicts_in(Answer(200, {}, b'{"status": "success"}'), 3) == {}
    judged = verdict.verdicts_in(Answer(200, {}, body), 3)
    assert {index: (each.reason, each.is_retriable) for index, each in judged.items()} == {
        1: ("bad", False), 2: ("no reason given", True),
    }  # fmt: skip
    with pytest.raises(OutcomeUnknown):
        verdict.verdicts_in(Answer(200, {}, b"<html>"), 3)


def test_a_letters_id_is_the_same_again_and_differs_by_destination() -> None:
    one = letter_id("a", event(1).id)
    assert one == letter_id("a", event(1).id)
    assert len({one, letter_id("b", event(1).id), letter_id("a", event(2).id)}) == 3
    assert isinstance(one, UUID)
    assert (one.version, one.variant) == (8, UUID(int=identifier(1).int).variant)
    assert letter_id("z", identifier(1)) < letter_id("a", identifier(2))


def test_a_signature_covers_time_and_body() -> None:
    clock = ManualClock()
    key = b"0123456789abcdef"
    headers = Signer(key, clock)("/", {}, b"body")
    assert headers == {
        "X-Thence-Timestamp": "1709208000",
        "X-Thence-Signature": f"v1={signature(key, '1709208000', b'body')}",
    }
    clock.advance(1.0)
    assert Signer(key, clock)("/", {}, b"body")["X-Thence-Signature"] != headers["X-Thence-Signature"]
    assert signature(b"key-of-somebody-else", "1", b"x") != signature(key, "1", b"x")
    # echo -n '1.x' | openssl dgst -sha256 -hmac 0123456789abcdef
    assert signature(key, "1", b"x") == "fd8cad50b6953efad15ba0fbbbdeaf3d76e8949cf002bfb1d3a956fc259a4c57"
    with pytest.raises(ConfigError):
        Signer(b"short")


@pytest.mark.parametrize(
    "url",
    [
        "backend:5000",
        "ftp://x/",
        "http://",
        "http://user:secret@x/",
        "http://x:99999/",
        "http://x/a b",
        "http://ä/",
    ],
)
def test_urls_that_cannot_work_are_refused_and_show_no_password(url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Origin.of(url)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-C: d"}, {"X A": "b"}, {"": "b"}, {"X-A": "ä"}])
def test_headers_that_would_change_the_request_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        HttpBackend(HttpTarget("http://x/", headers=headers))
    with pytest.raises(ConfigError):
        HttpBackend(HttpTarget("http://x/", bearer="key\n"))


def test_amazons_signature_is_the_one_of_its_published_vector() -> None:
    clock = ManualClock(datetime(2015, 8, 30, 12, 36, 0, tzinfo=UTC))
    keys = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "us-east-1", "service")
    headers = AwsSigner(keys, clock)("/", {"Host": "example.amazonaws.com"}, b"")
    assert headers["X-Amz-Date"] == "20150830T123600Z"
    assert headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    )
    assert "wJalr" not in repr(keys)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(HttpTarget("http://x/", bearer="secret", headers={"X-Key": "secret"}))


def test_origins() -> None:
    assert str(Origin.of("https://a.example:443/x")) == "https://a.example"
    assert Origin.of("http://[::1]:8080/x").authority == "[::1]:8080"

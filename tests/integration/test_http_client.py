"""What goes over the wire: packing, keys, certificates, odd servers."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.receiver import Receiver, Told
from thence.core.errors import ConfigError, OutcomeUnknown, Unavailable
from thence.core.event import Event
from thence.core.ports import Sent
from thence.forward.failure import Misconfigured
from thence.forward.http import HttpBackend, HttpTarget
from thence.forward.webhook import signature, webhook
from thence.forward.wire import Timeouts, Tls
from thence.testing.contracts.samples import event, events
from thence.testing.faults import FaultProxy

PATIENT = Timeouts(connect_seconds=5.0, answer_seconds=5.0)


def sent(backend: HttpBackend, *batches: Sequence[Event]) -> list[Sent]:
    async def main() -> list[Sent]:
        try:
            return [await backend.send(batch) for batch in batches]
        finally:
            await backend.close()

    return asyncio.run(main())


def test_one_connection_serves_all_events() -> None:
    with Receiver() as receiver, FaultProxy(receiver.address) as proxy:
        backend = HttpBackend(HttpTarget("http://{}:{}/api/v1/lineage".format(*proxy.address)))
        assert sent(backend, events(20), events(20, first=21)) == [Sent(20), Sent(20)]
        assert proxy.connections == 1
    assert receiver.arrived == [each.payload for each in events(40)]


def test_small_bodies_go_as_they_are_and_large_ones_packed() -> None:
    large = event(2, size_bytes=100_000)
    with Receiver() as receiver:
        sent(HttpBackend(HttpTarget(receiver.url())), [event(1), large])
        sent(HttpBackend(HttpTarget(receiver.url(), gzip_above_bytes=None)), [large])
    assert receiver.arrived == [event(1).payload, large.payload, large.payload]
    assert [request.headers.get("content-encoding") for request in receiver.requests] == [None, "gzip", None]
    assert int(receiver.requests[1].headers["content-length"]) < 10_000


def test_keys_headers_ids_and_traces_are_sent() -> None:
    with Receiver() as receiver:
        target = HttpTarget(
            receiver.url("/x?requestId={event_id}"),
            bearer="key",
            headers={"X-A": "b", "Client-Token": "{event_id}"},
        )
        sent(HttpBackend(target), [event(1)])
    (request,) = receiver.requests
    assert request.path == f"/x?requestId={event(1).id}"
    assert request.headers["authorization"] == "Bearer key"
    assert request.headers["x-a"] == "b"
    assert request.headers["client-token"] == str(event(1).id)
    assert request.headers["traceparent"] == event(1).traceparent
    assert request.headers["content-type"] == "application/json"


def test_a_token_in_a_file_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old\n")
    with Receiver() as receiver:
        backend = HttpBackend(HttpTarget(receiver.url(), bearer_file=file))
        file.write_text("new\n")
        receiver.told.append(Told(401))
        assert sent(backend, [event(1)]) == [Sent(1)]
        assert [request.headers["authorization"] for request in receiver.requests] == [
            "Bearer old",
            "Bearer new",
        ]
        backend = HttpBackend(HttpTarget(receiver.url(), bearer_file=file))
        receiver.told.extend([Told(401)] * 2)
        with pytest.raises(Misconfigured):
            sent(backend, [event(2)])
        assert len(receiver.requests) == 3
    with pytest.raises(ConfigError):
        HttpBackend(HttpTarget("http://x", bearer_file=tmp_path / "nothing"))


def test_a_webhook_can_be_checked_by_its_receiver() -> None:
    key = b"0123456789abcdef"
    large = event(2, size_bytes=100_000)
    with Receiver() as receiver:
        sent(webhook(HttpTarget(receiver.url("/hook")), key), [event(1), large])
    for request, each in zip(receiver.requests, (event(1), large), strict=True):
        timestamp = request.headers["x-thence-timestamp"]
        assert request.headers["x-thence-event"] == str(each.id)
        assert request.headers["x-thence-signature"] == f"v1={signature(key, timestamp, request.raw)}"
    assert receiver.requests[1].raw != large.payload


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate_in(tmp_path_factory.mktemp("tls"))


def certificate_in(directory: Path) -> tuple[Path, Path]:
    key, file = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
         "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out",
         str(file)], check=True, capture_output=True,
    )  # fmt: skip
    return file, key


def test_tls_is_used_and_certificates_are_checked(certificate: tuple[Path, Path]) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with Receiver(tls=context) as receiver:
        trusting = HttpBackend(HttpTarget(receiver.url(), tls=Tls(ca_file=certificate[0])))
        assert sent(trusting, events(3), events(3, first=4)) == [Sent(3), Sent(3)]
        with pytest.raises(Misconfigured, match="not trusted"):
            sent(HttpBackend(HttpTarget(receiver.url())), events(1))
    assert receiver.arrived == [each.payload for each in events(6)]
    with Receiver() as plain:
        url = plain.url().replace("http:", "https:")
        with pytest.raises(Unavailable):
            sent(HttpBackend(HttpTarget(url, tls=Tls(ca_file=certificate[0]))), events(1))
    with pytest.raises(ConfigError):
        HttpBackend(HttpTarget("https://x", tls=Tls(ca_file=Path("/nothing"))))


def test_a_host_that_is_not_there_is_unavailable() -> None:
    for url in ("http://127.0.0.1:1/", "http://host.invalid/"):
        with pytest.raises(Unavailable):
            sent(HttpBackend(HttpTarget(url, timeouts=PATIENT)), events(1))


def test_a_redirect_is_not_followed() -> None:
    with Receiver() as receiver, Receiver() as elsewhere:
        receiver.told.append(Told(308, (("Location", elsewhere.url()),)))
        with pytest.raises(Misconfigured, match=str(elsewhere.address[1])):
            sent(HttpBackend(HttpTarget(receiver.url(), bearer="key")), events(1))
        assert elsewhere.requests == []


def test_both_endpoints_are_at_one_host() -> None:
    with pytest.raises(ConfigError):
        HttpBackend(HttpTarget("http://a/x", "http://b/x"))


@contextmanager
def answering(*answers: bytes) -> Iterator[str]:
    """A server that says these bytes, one for each connection, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answer in answers:
                client, _ = listener.accept()
                with client:
                    received = b""
                    while not received.endswith(b"}"):
                        received += client.recv(65536)
                    client.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join(10.0)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1000000,
    ],
)
def test_all_forms_of_answers_are_understood(answer: bytes) -> None:
    with answering(answer, answer) as url:
        assert sent(HttpBackend(HttpTarget(url)), events(2)) == [Sent(2)]


@pytest.mark.parametrize(
    "answer",
    [b"", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", b"HTTP/1.1 2"],
)
def test_no_answer_or_half_of_one_leaves_the_outcome_open(answer: bytes) -> None:
    with answering(answer) as url, pytest.raises(OutcomeUnknown):
        sent(HttpBackend(HttpTarget(url)), events(1))


def test_a_time_out_leaves_the_outcome_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with pytest.raises(OutcomeUnknown):
            sent(HttpBackend(HttpTarget(url, timeouts=Timeouts(answer_seconds=0.1))), events(1))

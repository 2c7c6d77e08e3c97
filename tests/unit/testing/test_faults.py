"""Each fault does to a real HTTP server and a real client what it says."""

from __future__ import annotations

import errno
import http.client
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

import pytest

from thence.testing.faults import FaultProxy

BODY = b"0123456789" * 20_000


class Server(ThreadingHTTPServer):
    """Remembers the bodies of requests that it has read whole, and the errors of reading."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[bytes] = []
        self.errors: list[BaseException | None] = []
        self.something = threading.Condition()

    def note(self, *, body: bytes | None = None, error: BaseException | None = None) -> None:
        with self.something:
            if body is not None:
                self.seen.append(body)
            else:
                self.errors.append(error)
            self.something.notify_all()

    def handle_error(self, request: object, client_address: object) -> None:
        import sys

        self.note(error=sys.exc_info()[1])

    def wait_for_error(self) -> BaseException | None:
        with self.something:
            assert self.something.wait_for(lambda: self.errors, 20)
            return self.errors[0]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) < length:
            self.server.note(error=EOFError("the request ended early"))
            self.close_connection = True
            return
        self.server.note(body=body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join(20)


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy(server.server_address[:2]) as proxy:  # type: ignore[arg-type]
        yield proxy


@contextmanager
def connected(proxy: FaultProxy, timeout: float = 20) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection(*proxy.address, timeout=timeout)) as connection:
        yield connection


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    connection.request("POST", "/", body=body)
    with connection.getresponse() as response:
        return response.read()


def post_anew(proxy: FaultProxy, body: bytes = b"hello", timeout: float = 20) -> bytes:
    with connected(proxy, timeout) as connection:
        return post(connection, body)


def drain(link: socket.socket) -> bytes:
    """What arrives on a link before it is reset."""
    received = bytearray()
    try:
        while piece := link.recv(4096):
            received += piece
    except ConnectionResetError:
        return bytes(received)
    pytest.fail("the link ended in good order")


def test_without_faults_everything_passes(server: Server, proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        assert post(connection, BODY) == BODY
        assert post(connection, b"small") == b"small"
    assert post_anew(proxy) == b"hello"
    assert server.seen == [BODY, b"small", b"hello"]
    assert proxy.connections == 2
    assert proxy.bytes_to_server > len(BODY)
    assert proxy.bytes_to_client > len(BODY)


def test_the_end_of_a_stream_passes() -> None:
    """A client that has said all and closed its half still gets its answer, from a server that waits for the end."""
    with socket.create_server(("127.0.0.1", 0)) as listener, FaultProxy(listener.getsockname()) as proxy:
        listener.settimeout(20)
        with socket.create_connection(proxy.address, 20) as client:
            client.sendall(b"all that I have to say")
            client.shutdown(socket.SHUT_WR)
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(20)
                said = b"".join(iter(lambda: accepted.recv(4096), b""))
                accepted.sendall(said.upper())
            assert b"".join(iter(lambda: client.recv(4096), b"")) == b"ALL THAT I HAVE TO SAY"


def test_latency_makes_an_answer_wait(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        post(connection, b"warm")
        with proxy.latency(0.1):
            began = monotonic()
            assert post(connection, b"slow") == b"slow"
            # One delay for each direction at least; how much more depends on the machine.
            assert monotonic() - began >= 0.2


def test_healing_ends_a_wait(proxy: FaultProxy) -> None:
    """A piece that waits goes on when its fault has healed, and not when its time is over."""
    with connected(proxy) as connection:
        with proxy.latency(3_600):
            connection.request("POST", "/", body=b"patient")
        with connection.getresponse() as response:
            assert response.read() == b"patient"


def test_bandwidth_makes_a_body_take_time(proxy: FaultProxy) -> None:
    with proxy.bandwidth(1_000_000, "to_client"):
        began = monotonic()
        assert post_anew(proxy, BODY) == BODY
        assert monotonic() - began >= 0.9 * len(BODY) / 1_000_000


def test_a_cut_closes_links_and_refuses_new_ones(server: Server, proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        post(connection, b"before")
        with proxy.cut():
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                post(connection, b"during")
            with pytest.raises(ConnectionRefusedError):
                post_anew(proxy)
        assert post_anew(proxy, b"after") == b"after"
    assert server.seen == [b"before", b"after"]


def test_dropping_closes_links_and_takes_new_ones(proxy: FaultProxy) -> None:
    with socket.create_connection(proxy.address, 20) as client, connected(proxy) as other:
        post(other, b"through")
        proxy.drop()
        assert client.recv(1) == b""
        assert post_anew(proxy) == b"hello"


def test_dropping_by_reset_resets(proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        post(connection, b"through")
        proxy.drop(reset=True)
        assert isinstance(connection.sock, socket.socket)
        with pytest.raises(ConnectionResetError):
            connection.sock.recv(1)


@pytest.mark.parametrize("count", [0, 1, 17, 100_000])
def test_a_reset_on_the_way_back_comes_after_so_many_bytes(
    server: Server, proxy: FaultProxy, count: int
) -> None:
    with connected(proxy) as connection, proxy.reset_after(count, "to_client"):
        connection.request("POST", "/", body=BODY)
        received = drain(connection.sock)
    assert len(received) == proxy.bytes_to_client == count
    assert server.seen == [BODY]
    assert post_anew(proxy) == b"hello"


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_a_reset_on_the_way_there_leaves_a_torn_request(
    server: Server, proxy: FaultProxy, count: int
) -> None:
    with proxy.reset_after(count, "to_server"), pytest.raises(ConnectionError):
        post_anew(proxy, BODY)
    assert proxy.bytes_to_server == count
    error = server.wait_for_error()
    assert isinstance(error, ConnectionResetError)
    assert error.errno == errno.ECONNRESET
    assert server.seen == []


def test_a_reset_counts_from_when_it_came_into_force(server: Server, proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        post(connection, BODY)
        with proxy.reset_after(1_000, "to_client"):
            assert post(connection, b"short") == b"short"
            with pytest.raises((ConnectionResetError, http.client.IncompleteRead)):
                post(connection, BODY)
    assert server.seen == [BODY, b"short", BODY]


def test_a_lost_answer_is_lost_after_the_request_arrived(server: Server, proxy: FaultProxy) -> None:
    with proxy.lost_answers(), pytest.raises(ConnectionResetError):
        post_anew(proxy, b"arrives")
    assert server.seen == [b"arrives"]
    assert proxy.bytes_to_client == 0
    assert post_anew(proxy) == b"hello"


def test_as_many_answers_are_lost_as_were_asked_for(server: Server, proxy: FaultProxy) -> None:
    with proxy.lost_answers(2):
        for _ in range(2):
            with pytest.raises(ConnectionResetError):
                post_anew(proxy, b"lost")
        assert post_anew(proxy, b"found") == b"found"
    assert server.seen == [b"lost", b"lost", b"found"]


def test_the_answer_of_an_open_link_is_lost(server: Server, proxy: FaultProxy) -> None:
    with connected(proxy) as connection:
        post(connection, b"first")
        with proxy.lost_answers(), pytest.raises(ConnectionResetError):
            post(connection, b"second")
    assert server.seen == [b"first", b"second"]


def test_a_hanging_link_is_accepted_and_passes_nothing(server: Server, proxy: FaultProxy) -> None:
    with connected(proxy, timeout=0.3) as connection:
        with proxy.hang():
            with pytest.raises(TimeoutError):
                post(connection, b"held back")
            assert proxy.connections == 1
            assert server.seen == []
            assert proxy.bytes_to_server == 0
        connection.sock.settimeout(20)
        answer = http.client.HTTPResponse(connection.sock)
        answer.begin()
        assert answer.read() == b"held back"
        answer.close()


def test_a_link_may_hang_in_the_middle(proxy: FaultProxy) -> None:
    with connected(proxy, timeout=20) as connection:
        with proxy.hang(after=100_000, direction="to_client"):
            connection.request("POST", "/", body=BODY)
            received = bytearray()
            while len(received) < 100_000:
                received += connection.sock.recv(4096)
            connection.sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                connection.sock.recv(1)
            assert len(received) == proxy.bytes_to_client == 100_000
        connection.sock.settimeout(20)
        while not received.endswith(b"\r\n\r\n" + BODY):
            piece = connection.sock.recv(65_536)
            assert piece, "the link ended before the answer"
            received += piece


def test_faults_act_together_and_heal_apart(proxy: FaultProxy) -> None:
    with proxy.hang(direction="to_client"):
        with proxy.cut(), pytest.raises(ConnectionRefusedError):
            post_anew(proxy)
        with pytest.raises(TimeoutError):
            post_anew(proxy, timeout=0.3)
    assert post_anew(proxy) == b"hello"


def test_a_fault_heals_though_the_test_fails(proxy: FaultProxy) -> None:
    with pytest.raises(ZeroDivisionError), proxy.cut():
        1 / 0  # noqa: B018 - any error will do
    assert post_anew(proxy) == b"hello"


def test_healing_ends_all_faults(proxy: FaultProxy) -> None:
    with proxy.cut(), proxy.hang():
        proxy.heal()
        assert post_anew(proxy) == b"hello"


def test_a_server_that_is_not_there_resets(server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with FaultProxy(unused.getsockname()) as proxy, pytest.raises(ConnectionError):
            post_anew(proxy)


def test_the_end_of_the_proxy_ends_its_links(server: Server) -> None:
    with ExitStack() as faults:
        with FaultProxy(server.server_address[:2]) as proxy:  # type: ignore[arg-type]
            client = socket.create_connection(proxy.address, 20)
            faults.enter_context(proxy.hang())
            client.sendall(b"x")
        with client:
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(proxy.address, 20)
    assert "fault-proxy" not in {thread.name for thread in threading.enumerate()}

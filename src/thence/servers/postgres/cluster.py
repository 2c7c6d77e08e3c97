"""Data directories: made, entered without a server, and told apart by version.

A cluster is initialised under another name, synced and renamed, so that `data` is either absent or whole.
SQL without a server runs in single-user mode: no port is open and no password is on a command line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from thence.core.errors import ConfigError, ThenceError, Unavailable
from thence.disk import durable
from thence.servers.postgres.account import Account
from thence.servers.postgres.binaries import Binaries
from thence.servers.postgres.home import Home, disk_full

SETTINGS = """
# Added by thence: a small server on the loopback. Own settings go into postgresql.conf beside this data directory,
# which is read last and stays when a new major version makes this file anew.
password_encryption = scram-sha-256
shared_buffers = 64MB
effective_cache_size = 512MB
max_wal_size = 512MB
log_line_prefix = '%m [%p] %q%u@%d '
log_checkpoints = off
timezone = UTC
include_if_exists = '../postgresql.conf'
"""
ACCESS = """# Written by thence: passwords only, and only over the loopback.
host all all 127.0.0.1/32 scram-sha-256
"""
SCRIPTS = Path(__file__).parent


class Tools(msgspec.Struct, frozen=True):
    """The programs of one PostgreSQL version, run by the right user for one home."""

    home: Home
    binaries: Binaries
    account: Account

    def run(self, name: str, *arguments: str, cwd: Path, stdin: str = "") -> str:
        """Run one program; its output. A failure becomes an error with the last lines of it."""
        code, said = self.account.run([self.binaries.program(name), *arguments], cwd=cwd, stdin=stdin)
        if code != 0:
            raise self._failed(name, said)
        return said

    def execute(self, data: Path, script: str) -> None:
        """Run statements in single-user mode, which also recovers a cluster that was not shut down."""
        options = ("exit_on_error=on", "log_min_error_statement=panic", "log_checkpoints=off")
        settings = [word for option in options for word in ("-c", option)]
        self.run("postgres", "--single", "-j", "-D", str(data), *settings, "postgres", cwd=data, stdin=script)

    def _failed(self, name: str, said: str) -> ThenceError:
        lines = " | ".join([line.strip() for line in said.splitlines() if line.strip()][-8:])
        if "No space left on device" in said:
            return disk_full(self.home, lines)
        return Unavailable(
            "postgres.tool_failed",
            f"{name} of PostgreSQL {self.binaries.version} failed in {self.home.root}: {lines}",
            advice="The lines above are PostgreSQL's own. Nothing was left half-made; start again when it is mended.",
        )


def initialise(tools: Tools, data: Path, *, checksums: bool = True) -> None:
    """Make an empty cluster that lets nobody in without a password. Not synced."""
    data.mkdir(mode=0o700)
    tools.account.own(data)
    tools.run(
        "initdb", "-D", str(data), "--username=postgres", "--auth=reject", "--no-locale", "--encoding=UTF8",
        *_checksums(tools.binaries, wanted=checksums), "--no-sync", "--no-instructions", cwd=data,
    )  # fmt: skip
    with (data / "postgresql.conf").open("a") as file:
        file.write(SETTINGS)
    (data / "pg_hba.conf").write_text(ACCESS)


def create(tools: Tools, passwords: Mapping[str, str]) -> None:
    """Make the cluster of a new server, with its roles and databases."""
    making = tools.home.making
    initialise(tools, making)
    tools.execute(making, statements("databases"))
    set_passwords(tools, making, passwords)
    tools.run("initdb", "--sync-only", "-D", str(making), cwd=making)
    durable.rename(making, tools.home.data)


def set_passwords(tools: Tools, data: Path, passwords: Mapping[str, str]) -> None:
    """Tell a cluster the passwords of its roles."""
    tools.execute(data, statements("passwords", passwords))


def statements(name: str, parameters: Mapping[str, str] | None = None) -> str:
    """A script beside this file, each `:'name'` in it replaced by a quoted literal."""
    values = parameters or {}
    text = (SCRIPTS / f"{name}.sql").read_text()
    return re.sub(r":'(\w+)'", lambda match: _literal(values[match[1]]), text)


def version(data: Path) -> str:
    """The major version that wrote a data directory."""
    try:
        return (data / "PG_VERSION").read_text().strip()
    except FileNotFoundError as error:
        raise ConfigError(
            "postgres.data_damaged",
            f"{data} holds no PostgreSQL cluster: it has no PG_VERSION.",
            advice="Put it back from a backup, or move it away to begin with an empty one. Nothing was touched.",
        ) from error


def control(tools: Tools, data: Path) -> dict[str, str]:
    """What the control file of a cluster says."""
    lines = tools.run("pg_controldata", "-D", str(data), cwd=data).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _checksums(binaries: Binaries, *, wanted: bool) -> tuple[str, ...]:
    if wanted:
        return ("--data-checksums",)
    # Before 18 the default was none, and there was no option to say so.
    return ("--no-data-checksums",) if int(binaries.major) >= 18 else ()  # noqa: PLR2004

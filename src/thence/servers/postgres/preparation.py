"""From a directory in whatever state to one that a server can be started in.

Decided by what is there: nothing, a cluster of this version, one of an older version, or what a crash left of
making one. A cluster of a version that is not at hand is refused before anything is written.
"""

from __future__ import annotations

import logging

from thence.core.clock import Clock
from thence.core.errors import ConfigError, ThenceError
from thence.servers.postgres import account, binaries, cluster, credentials, leftovers, upgrade
from thence.servers.postgres.binaries import Binaries
from thence.servers.postgres.cluster import Tools
from thence.servers.postgres.credentials import Credentials
from thence.servers.postgres.home import Home

logger = logging.getLogger(__name__)


def prepare(home: Home, clock: Clock) -> tuple[Tools, Credentials]:
    """Make the data ready for the newest version; the tools and the passwords for it. The caller owns the home."""
    installed = binaries.find()
    newest = installed[0]
    tools = Tools(home, newest, account.choose(newest.program("postgres"), home.root))
    leftovers.stop(home, clock)
    upgrade.resume(home)
    if home.data.exists():
        return tools, _open(tools, installed)
    return tools, _create(tools)


def _create(tools: Tools) -> Credentials:
    passwords = credentials.read(tools.home.credentials) or _new_credentials(tools.home)
    cluster.create(tools, passwords.parameters())
    about = {"action": "postgres_initialised", "directory": str(tools.home.root)}
    logger.info("initialised PostgreSQL %s", tools.binaries.version, extra=about)
    return passwords


def _open(tools: Tools, installed: tuple[Binaries, ...]) -> Credentials:
    home = tools.home
    major = cluster.version(home.data)
    writers = [each for each in installed if each.major == major]
    if not writers:
        raise _unknown_version(home, major, installed)
    tools.account.own_tree(home.data)
    if major != tools.binaries.major:
        upgrade.upgrade(Tools(home, writers[0], tools.account), tools)
    return credentials.read(home.credentials) or _replace_credentials(tools)


def _replace_credentials(tools: Tools) -> Credentials:
    """The file is gone. Whoever may write the data may also set new passwords."""
    passwords = credentials.generate()
    cluster.set_passwords(tools, tools.home.data, passwords.parameters())
    credentials.write(tools.home.credentials, passwords)
    about = {"action": "postgres_passwords_replaced", "directory": str(tools.home.root)}
    logger.warning("credentials.json was missing: new passwords were set", extra=about)
    return passwords


def _new_credentials(home: Home) -> Credentials:
    passwords = credentials.generate()
    credentials.write(home.credentials, passwords)
    return passwords


def _unknown_version(home: Home, major: str, installed: tuple[Binaries, ...]) -> ThenceError:
    known = ", ".join(each.major for each in installed)
    return ConfigError(
        "postgres.version_unknown",
        f"{home.data} was written by PostgreSQL {major}; here are only {known}. Nothing was touched.",
        advice=f"Start it with the thence that wrote it, or dump it with the tools of PostgreSQL {major} "
        "and load the dump into a new directory.",
    )

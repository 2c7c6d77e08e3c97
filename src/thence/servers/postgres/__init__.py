"""An embedded PostgreSQL: binaries from a wheel, one data directory, one owner.

`PostgresServer.start` initialises the directory once, upgrades it when it is of an older major version, and returns
when connections are accepted. What a client saw committed survives `kill -9` of PostgreSQL (it is restarted), of
thence (a guardian stops it, the next start takes the data over) and a crash inside initialisation or upgrade (both
work beside the data and take effect by a rename).
"""

from __future__ import annotations

from thence.servers.postgres.server import PostgresServer

__all__ = ["PostgresServer"]

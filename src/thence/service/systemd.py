"""Tells systemd how this process is doing, for units of `Type=notify`.

Nothing happens unless systemd asks for it by NOTIFY_SOCKET. A socket that cannot be reached stops nothing: systemd
then gives up waiting, and the log says why.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)
_SECONDS = 1.0


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send one state, such as `READY=1`."""
    address = environment.get("NOTIFY_SOCKET")
    if not address:
        return
    # A name that begins with @ is one of the abstract namespace of Linux.
    name = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.settimeout(_SECONDS)
            channel.sendto(state.encode(), name)
    except OSError as error:
        _log.warning("systemd was not told %s: %s", state, error, extra={"action": "systemd_unreachable"})

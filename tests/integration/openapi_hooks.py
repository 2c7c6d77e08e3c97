"""Loaded by schemathesis: bodies are compressed as their Content-Encoding says, which it does not do by itself."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import schemathesis
from backports import zstd

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "identity": bytes,
    "": bytes,
}


@schemathesis.serializer("application/json")
def packed(context: Any, value: Any) -> bytes:
    plain = value if isinstance(value, bytes) else json.dumps(value).encode()
    return PACK.get(context.case.headers.get("Content-Encoding"), bytes)(plain)

"""What the self-contained executable runs: the command line, after finding whom this machine trusts.

OpenSSL looks for certificate authorities where the machine that built it keeps them. Elsewhere that place may be
empty, and every destination with https would be refused; so the usual places are looked at. `SSL_CERT_FILE` and
`SSL_CERT_DIR` of the operator come first, and so does `ca_file` of a destination.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from thence.cli.main import main

AUTHORITIES = (
    "etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine, distroless images
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "etc/pki/tls/certs/ca-bundle.crt",  # older ones of these
    "etc/ssl/ca-bundle.pem",  # SUSE
    "etc/ssl/cert.pem",  # macOS, BSD
)


def trust(environment: MutableMapping[str, str], root: Path = Path("/")) -> None:
    """Tell OpenSSL where this machine keeps its authorities, unless somebody said it."""
    if "SSL_CERT_FILE" in environment or "SSL_CERT_DIR" in environment:
        return
    found = next((root / name for name in AUTHORITIES if (root / name).is_file()), None)
    if found is not None:
        environment["SSL_CERT_FILE"] = str(found)


if __name__ == "__main__":
    trust(os.environ)
    main()

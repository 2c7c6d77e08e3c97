from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.http.serving import Served, serving


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as served:
        yield served

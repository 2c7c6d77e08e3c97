"""Steps of decompression, at the sizes where a step ends."""

from __future__ import annotations

import zlib

import pytest

from thence.http.codings import STEP_BYTES, Inflater, inflate


@pytest.mark.parametrize("window", [-15, 15, 31])
def test_nothing_is_left_inside_when_the_data_ends_with_a_step(window: int) -> None:
    for size in range(STEP_BYTES - 300, STEP_BYTES + 300):
        squeezer = zlib.compressobj(wbits=window)
        squeezed = squeezer.compress(bytes(size)) + squeezer.flush()
        inflater, found = Inflater("gzip" if window == 31 else "deflate", size), bytearray()
        inflater.feed(squeezed)
        assert inflate(inflater, found)
        assert len(found) == size


def test_steps_can_be_counted() -> None:
    inflater, found = Inflater("gzip", 1 << 20), bytearray()
    squeezer = zlib.compressobj(wbits=31)
    inflater.feed(squeezer.compress(bytes(1 << 20)) + squeezer.flush())
    assert not inflate(inflater, found, most_steps=3)
    assert len(found) == 3 * STEP_BYTES
    assert inflate(inflater, found)
    assert len(found) == 1 << 20

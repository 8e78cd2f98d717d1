"""Layers become the same bytes however they arrive."""

from __future__ import annotations

import gzip
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rayfleet.fleet.model import Compression
from rayfleet.image.layers.compression import BLOCK, compressed, compression_of, cut, decompressed

RANDOM = random.Random(1)  # noqa: S311 (test data)
# Two blocks and a bit, of which about half compresses.
LAYER = b"".join(RANDOM.randbytes(500) + bytes(500) for _ in range(1100))
assert 2 * BLOCK < len(LAYER) < 3 * BLOCK


def squeeze(chunks: Iterable[bytes], compression: Compression, *, cores: int = 2) -> bytes:
    with ThreadPoolExecutor(cores) as helpers:
        return b"".join(compressed(cut(chunks), compression, helpers=helpers, ahead=cores + 1))


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    ends = [*sorted(cuts), len(data)]
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("compression", Compression)
@given(cuts=st.lists(st.integers(0, len(LAYER)), max_size=8))
def test_neither_chunks_nor_cores_change_a_byte(compression: Compression, cuts: list[int]) -> None:
    whole = squeeze([LAYER], compression, cores=1)
    assert squeeze(pieces(LAYER, cuts), compression, cores=3) == whole
    assert len(whole) < len(LAYER) * 0.6


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, len(LAYER)])
def test_others_read_what_is_written(size: int) -> None:
    layer = LAYER[:size]
    packed = squeeze([layer], Compression.GZIP)
    assert gzip.decompress(packed) == layer
    assert packed[:10] == b"\x1f\x8b\x08" + bytes(6) + b"\xff", "no time, no name"
    packed = squeeze([layer], Compression.ZSTD)
    assert zstandard.ZstdDecompressor().decompressobj().decompress(packed) == layer


@given(cuts=st.lists(st.integers(0, len(LAYER)), max_size=8))
def test_cutting_loses_nothing_and_fills_all_blocks_but_the_last(cuts: list[int]) -> None:
    blocks = list(cut(pieces(LAYER, cuts)))
    assert b"".join(blocks) == LAYER
    assert {len(block) for block in blocks[:-1]} == {BLOCK}


def test_no_more_is_read_ahead_than_allowed() -> None:
    taken = 0

    def blocks() -> Iterator[bytes]:
        nonlocal taken
        for _ in range(100):
            taken += 1
            yield bytes(BLOCK)

    with ThreadPoolExecutor(2) as helpers:
        output = compressed(blocks(), Compression.GZIP, helpers=helpers, ahead=3)
        next(output)  # the header
        for count in range(1, 5):
            next(output)
            assert taken <= 3 + count
        output.close()


def test_what_is_compressed_is_told_by_its_first_bytes() -> None:
    assert compression_of(gzip.compress(b"x")) is Compression.GZIP
    assert compression_of(zstandard.compress(b"x")) is Compression.ZSTD
    assert compression_of(b"usr/\0\0\0\0") is None
    assert compression_of(b"") is None


@pytest.mark.parametrize("compression", Compression)
@given(cuts=st.lists(st.integers(0, 2000), max_size=6))
def test_several_members_in_any_chunks_are_read_as_one(
    compression: Compression, cuts: list[int]
) -> None:
    pack = gzip.compress if compression is Compression.GZIP else zstandard.compress
    packed = pack(b"first " * 100) + pack(b"second")
    chunks = pieces(packed, (min(at, len(packed)) for at in cuts))
    assert b"".join(decompressed(chunks, compression)) == b"first " * 100 + b"second"


@given(at=st.integers(10, 20_000))
def test_damaged_gzip_is_refused(at: int) -> None:
    packed = bytearray(squeeze([LAYER], Compression.GZIP))
    packed[at] ^= 0xFF
    with pytest.raises(ValueError, match="no sound gzip data"):
        list(decompressed([bytes(packed)], Compression.GZIP))


@pytest.mark.parametrize("compression", Compression)
def test_what_is_no_compressed_data_at_all_is_refused(compression: Compression) -> None:
    with pytest.raises(ValueError, match=f"no sound {compression} data"):
        list(decompressed([LAYER], compression))


def test_a_gzip_stream_that_ends_early_is_refused() -> None:
    packed = squeeze([LAYER], Compression.GZIP)
    with pytest.raises(ValueError, match="no sound gzip data"):
        list(decompressed([packed[: len(packed) // 2]], Compression.GZIP))

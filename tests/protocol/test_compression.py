"""The four codecs against other implementations, damaged data, and data that expands without end."""

from __future__ import annotations

import gzip
import random
import struct
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.compression import XERIAL_HEADER, Compression, compress, decompress
from penstock.protocol.errors import CorruptBatch

MEGABYTE = 1 << 20
CODECS = [codec for codec in Compression if codec is not Compression.NONE]
every_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


def sample(size: int) -> bytes:
    return random.Random(size).randbytes(size // 2 + 1) * 2


@every_codec
@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024 - 1, 32 * 1024, 32 * 1024 + 1, 300_000])
def test_data_survives_compression(codec: Compression, size: int) -> None:
    data = sample(size)[:size]
    for buffer in (data, bytearray(data), memoryview(data)):
        packed = compress(codec, buffer)
        assert decompress(codec, packed, size) == data
        assert decompress(codec, memoryview(packed), MEGABYTE) == data


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(Compression)), st.binary(max_size=5000))
def test_any_data_survives_compression(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), 5000) == data


@every_codec
def test_data_that_expands_to_exactly_the_limit_is_allowed_and_one_byte_more_is_not(codec: Compression) -> None:
    data = bytes(3 * MEGABYTE)
    assert decompress(codec, compress(codec, data), 3 * MEGABYTE) == data
    with pytest.raises(CorruptBatch, match="expands to more than"):
        decompress(codec, compress(codec, data), 3 * MEGABYTE - 1)


@every_codec
def test_data_cut_off_at_any_byte_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, sample(60))
    # A stream of snappy blocks has no end mark: cut between blocks, it is a shorter stream.
    whole = [len(XERIAL_HEADER)] if codec is Compression.SNAPPY else []
    for end in range(len(packed)):
        if end not in whole:
            with pytest.raises(CorruptBatch):
                decompress(codec, packed[:end], MEGABYTE)


@every_codec
def test_damaged_data_is_other_data_or_corrupt(codec: Compression) -> None:
    rng = random.Random(1)
    packed = compress(codec, b"the quick brown fox " * 50 + rng.randbytes(200))
    for _ in range(400):
        damaged = bytearray(packed)
        for _ in range(rng.choice([1, 2, 5])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            decompress(codec, bytes(damaged), 100_000)
        except CorruptBatch:
            pass


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=200))
def test_arbitrary_bytes_are_data_or_corrupt(codec: Compression, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, 100_000)) <= 100_000
    except CorruptBatch:
        pass


def test_lz4_blocks_are_independent_because_java_reads_no_others() -> None:
    packed = compress(Compression.LZ4, sample(300_000))
    info = lz4.frame.get_frame_info(packed)
    assert info["block_linked"] is False
    assert lz4.frame.decompress(packed) == sample(300_000)


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("store_size", [True, False])
def test_lz4_frames_of_another_writer_are_read(linked: bool, store_size: bool) -> None:
    packed = lz4.frame.compress(sample(300_000), block_linked=linked, store_size=store_size, content_checksum=True)
    assert decompress(Compression.LZ4, packed, MEGABYTE) == sample(300_000)


def test_gzip_of_several_members_is_read() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, 7) == b"one two"
    with pytest.raises(CorruptBatch, match="expands to more than"):
        decompress(Compression.GZIP, packed, 6)


def test_snappy_is_read_bare_and_in_javas_stream_and_written_as_the_latter() -> None:
    bare = bytes(cramjam.snappy.compress_raw(sample(100_000)))
    assert decompress(Compression.SNAPPY, bare, MEGABYTE) == sample(100_000)
    stream = XERIAL_HEADER + struct.pack(">i", len(bare)) + bare
    assert decompress(Compression.SNAPPY, stream, MEGABYTE) == sample(100_000)
    assert compress(Compression.SNAPPY, b"x").startswith(b"\x82SNAPPY\0\0\0\0\1\0\0\0\1")


@pytest.mark.parametrize("size", [-1, 0, 5, 0x7FFFFFFF])
def test_a_snappy_block_that_lies_about_its_size_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch):
        decompress(Compression.SNAPPY, XERIAL_HEADER + struct.pack(">i", size) + b"abc", MEGABYTE)


def test_snappy_that_claims_four_gigabytes_is_refused_before_they_are_allocated() -> None:
    with pytest.raises(CorruptBatch, match="expands to more than"):
        decompress(Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20), MEGABYTE)


def bomb(codec: Compression, megabytes: int) -> bytes:
    """Zeros, made a megabyte at a time."""
    zeros = bytes(MEGABYTE)
    if codec is Compression.GZIP:
        deflate = zlib.compressobj(9, wbits=31)
        return b"".join([*(deflate.compress(zeros) for _ in range(megabytes)), deflate.flush()])
    if codec is Compression.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(zeros))
        return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * megabytes
    stream = cramjam.lz4.Compressor(level=1) if codec is Compression.LZ4 else cramjam.zstd.Compressor(level=1)
    out = b""
    for _ in range(megabytes):
        stream.compress(zeros)
        out += bytes(stream.flush())
    return out + bytes(stream.finish())


MEASURE = """
import resource, sys
from penstock.protocol.compression import Compression, decompress
from penstock.protocol.errors import CorruptBatch
bomb = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(Compression(int(sys.argv[1])), bomb, 8 << 20)
except CorruptBatch as error:
    assert "expands to more than" in str(error), error
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@every_codec
def test_a_bomb_of_300_megabytes_takes_no_more_memory_than_the_limit_allows(codec: Compression) -> None:
    child = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec))],
        input=bomb(codec, 300),
        capture_output=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert int(child.stdout) < 40 * 1024, "kilobytes beyond what the bomb itself took"


def test_threads_can_compress_at_the_same_time() -> None:
    data = sample(200_000)

    def survives(codec: Compression) -> bool:
        return decompress(codec, compress(codec, data), MEGABYTE) == data

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(survives, CODECS * 12))

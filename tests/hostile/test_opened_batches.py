"""Topics whose batches are opened before they are stored: bombs, damage inside, and floods of work."""

from __future__ import annotations

import functools
import gzip
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import cramjam
import pytest

from penstock.protocol.compression import Compression, compress
from penstock.protocol.framing import read_response, request_frame
from penstock.protocol.messages.produce import ProduceResponse
from penstock.protocol.record_batch import (
    ATTRIBUTES_AT,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    RECORD_COUNT_AT,
    batch_crc,
    read_batches,
    read_records,
)
from tests.brokers import BrokerProcess
from tests.hostile.clients import PRODUCE_VERSION, RawClient, answers_of, batch_of, produce_request
from tests.hostile.conftest import MEMORY_MB_MAX, Hostile, peak_mb

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, REQUEST_TIMED_OUT, INVALID_RECORD = 2, 10, 7, 87
BOMB_BYTES = 256 * 1024 * 1024
WORKER_MB_MAX = 40.0 + 2 * MEMORY_MB_MAX  # what it has at first, and what two connections that share it may cost

OPENED: dict[str, dict[str, str]] = {
    "recompressed": {"compression_type": "gzip"},
    "decompressed": {"compression_type": "uncompressed"},
    "validated": {"record_validation": "full"},
    "compacted": {"cleanup_policy": "compact"},
}


@pytest.fixture(params=OPENED)
def opened(request: pytest.FixtureRequest, broker: BrokerProcess, unique: Callable[[str], str]) -> str:
    """A topic whose batches the broker looks into, of every kind there is."""
    return RawClient(broker.port).create_topic(unique(request.param), **OPENED[request.param])


def holding(payload: bytes, count: int, codec: Compression = Compression.NONE) -> bytes:
    """A batch with a sound header and the right CRC around whatever is given as its records."""
    out = bytearray(batch_of()[:HEADER_SIZE]) + payload
    struct.pack_into(">i", out, LENGTH_AT, len(out) - 12)
    struct.pack_into(">h", out, ATTRIBUTES_AT, codec)
    struct.pack_into(">i", out, LAST_OFFSET_DELTA_AT, count - 1)
    struct.pack_into(">i", out, RECORD_COUNT_AT, count)
    struct.pack_into(">I", out, CRC_AT, batch_crc(out))
    return bytes(out)


def _snappy_claim() -> bytes:
    """One block that claims 2^31 bytes and has a few."""
    return b"\x80\x80\x80\x80\x08" + bytes(64)


def _snappy_stream() -> bytes:
    """Many blocks in a row, each as expansive as snappy can be."""
    block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
    return b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + (struct.pack(">i", len(block)) + block) * 18


def _lz4() -> bytes:
    stream = cramjam.lz4.Compressor(level=1, block_linked=False, content_checksum=False)
    for _ in range(8):
        stream.compress(bytes(1 << 24))
    return bytes(stream.finish())


@functools.cache
def bombs() -> dict[str, bytes]:
    """Each fits into max.message.bytes, and holds many times what the broker is willing to open."""
    return {
        "gzip": holding(gzip.compress(bytes(BOMB_BYTES), 6), 1, Compression.GZIP),
        "many gzip members": holding(gzip.compress(bytes(1 << 24), 6) * 16, 1, Compression.GZIP),
        "zstd": holding(bytes(cramjam.zstd.compress(bytes(BOMB_BYTES), level=1)), 1, Compression.ZSTD),
        "lz4": holding(_lz4(), 1, Compression.LZ4),
        "a claim in snappy": holding(_snappy_claim(), 1, Compression.SNAPPY),
        "a stream of snappy": holding(_snappy_stream(), 1, Compression.SNAPPY),
    }


def test_decompression_bombs_are_refused(hostile: Hostile, broker: BrokerProcess, opened: str) -> None:
    client = hostile(timeout_s=30)
    for name, bomb in bombs().items():
        assert len(bomb) < 1_048_588, name
        error = client.produce(opened, bomb).error_code
        if not (opened.startswith("recompressed") and "gzip" in name):  # which is stored as it comes
            assert error in (CORRUPT_MESSAGE, INVALID_RECORD), name
        assert _worker_mb(broker) < WORKER_MB_MAX, name


def _worker_mb(broker: BrokerProcess) -> float:
    """The highest resident memory that any child of the broker has had."""
    children = Path(f"/proc/{broker.pid}/task/{broker.pid}/children").read_text().split()
    return max((peak_mb(child) for child in children), default=0.0)


INSIDE: dict[str, bytes] = {
    "no records where two are promised": b"",
    "bytes of ones": b"\xff" * 64,
    "a record cut off": batch_of(b"a" * 40, b"b" * 40)[HEADER_SIZE:-7],
    "a record too many": batch_of(b"a", b"b", b"c")[HEADER_SIZE:],
    "a record too few": batch_of(b"a")[HEADER_SIZE:],
    "bytes behind the last record": batch_of(b"a", b"b")[HEADER_SIZE:] + b"\0",
    "a record of negative length": b"\x01" + bytes(20),
    "a varint without an end": b"\x80" * 20,
    "a key longer than its record": b"\x10\0\0\0\xfe\xff\xff\xff\x0f" + bytes(20),
    "millions of headers": b"\x14\0\0\0\x01\x01\xfe\xff\xff\xff\x0f" + bytes(20),
}


@pytest.mark.parametrize("codec", Compression)
def test_records_that_are_damaged_inside_a_right_crc_are_refused(
    hostile: Hostile, unique: Callable[[str], str], codec: Compression
) -> None:
    client = hostile()
    topic = client.create_topic(unique("validated"), record_validation="full")
    for name, records in INSIDE.items():
        answer = client.produce(topic, holding(compress(codec, records), 2, codec))
        assert answer.error_code in (INVALID_RECORD, CORRUPT_MESSAGE), name
    assert client.produce(topic, batch_of(b"sound", compression=codec)).base_offset == 0


@pytest.mark.parametrize("codec", [c for c in Compression if c])
def test_what_claims_to_be_compressed_and_is_not_is_refused(hostile: Hostile, opened: str, codec: Compression) -> None:
    client = hostile()
    for payload in (b"", b"\0", b"\xff" * 100, compress(codec, b"x" * 5000)[:-9], b"plain text, nothing more"):
        answer = client.produce(opened, holding(payload, 1, codec))
        if not (opened.startswith("recompressed") and codec is Compression.GZIP):
            assert answer.error_code in (INVALID_RECORD, CORRUPT_MESSAGE), payload


def test_a_damaged_batch_is_not_given_a_new_crc_on_the_way(hostile: Hostile, opened: str) -> None:
    client = hostile()
    batch = bytearray(batch_of(b"one", b"two", compression=Compression.LZ4))
    batch[CRC_AT] ^= 1
    assert client.produce(opened, bytes(batch)).error_code == CORRUPT_MESSAGE
    assert client.produce(opened, batch_of(b"one")).base_offset == 0


def test_three_hundred_producers_at_once_all_have_their_batches_opened(
    hostile: Hostile, unique: Callable[[str], str]
) -> None:
    """More jobs than wait for the worker at once: those beyond are told to come again, and nothing is lost or torn."""
    topic = hostile().create_topic(unique("recompressed"), compression_type="lz4")
    clients = hostile.crowd(300, timeout_s=30)
    values = [b"value of producer %d " % number * 50 for number in range(len(clients))]

    def send(client: RawClient, value: bytes) -> None:
        client.send(request_frame(produce_request(topic, batch_of(value)), PRODUCE_VERSION, 5, "hostile"))

    threads = [threading.Thread(target=send, args=pair) for pair in zip(clients, values)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = {}
    for client, value in zip(clients, values):
        frame = client.frame()
        assert frame is not None
        (answer,) = answers_of(read_response(ProduceResponse, frame, PRODUCE_VERSION)[1])
        assert answer.error_code in (0, REQUEST_TIMED_OUT), answer
        if answer.error_code == 0:
            stored[answer.base_offset] = value
    assert len(stored) >= 256
    assert _values(hostile(), topic) == stored


def _values(client: RawClient, topic: str) -> dict[int, bytes | None]:
    partition = client.fetch(topic, max_bytes=50 << 20).responses[0].partitions[0]
    return {
        record.offset: record.value
        for _, batch in read_batches(partition.records)
        for record in read_records(batch, 1 << 20, check_crc=True)
    }

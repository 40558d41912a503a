"""Targets inside this process: whatever reads bytes from a network or a disk raises one kind of error, and no other."""

from __future__ import annotations

import random
import resource
import time

from penstock.protocol.apis import REQUESTS, RESPONSE_OF
from penstock.protocol.codec import decode, encode_bytes
from penstock.protocol.compression import Compression
from penstock.protocol.errors import CorruptBatch
from penstock.protocol.framing import read_request_header, read_response
from penstock.protocol.record_batch import read_batches, read_records, validate_batch
from penstock.protocol.wire import DecodeError
from penstock.storage import jobs
from tests.fuzz.batches import random_batch
from tests.fuzz.mutation import damaged
from tests.fuzz.requests import LENGTH_SIZE, damaged_frame, spliced_frame
from tests.protocol.random_messages import _struct as random_struct

SECONDS_MAX = 2.0  # for one input
GROWTH_MB_MAX = 256
OPENED_MAX = 1 << 20


class Bounded:
    """Watches over the time of an input, and over the memory of all of them."""

    def __init__(self) -> None:
        self._at_first_mb = _peak_mb()
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        assert time.thread_time() - self._began < SECONDS_MAX, "it took too long"
        assert _peak_mb() - self._at_first_mb < GROWTH_MB_MAX, "it took too much memory"


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Decoding:
    """A request as a broker reads it, and a response as a client does. What can be read can be written again."""

    name = "decoding"

    def __init__(self) -> None:
        self._bounds = Bounded()

    def make(self, rng: random.Random) -> list[bytes]:
        if rng.random() < 0.3:
            cls = rng.choice(list(RESPONSE_OF.values()))
            version = rng.randint(cls.versions.first, cls.versions.last)
            body = encode_bytes(random_struct(cls, version, rng, None), version)
            return [b"response", b"%d" % cls.api_key, b"%d" % version, damaged(bytes(5) + body, rng)]
        return [b"request", (spliced_frame if rng.random() < 0.1 else damaged_frame)(rng)[LENGTH_SIZE:]]

    def run(self, lines: list[bytes]) -> None:
        with self._bounds:
            try:
                if lines[0] == b"request":
                    self._read_request(memoryview(lines[1]))
                else:
                    cls = RESPONSE_OF[REQUESTS[int(lines[1])]]
                    read_response(cls, lines[3], int(lines[2]))
            except DecodeError:
                pass

    def _read_request(self, frame: memoryview) -> None:
        header = read_request_header(frame)
        cls = REQUESTS[header.api_key]
        message = decode(cls, frame, header.api_version, header.body_position)
        again = decode(cls, encode_bytes(message, header.api_version), header.api_version)
        assert again == message or message != message, "what was written is not what was read"

    def finish(self) -> None:
        """Nothing to check."""

    def close(self) -> None:
        """Nothing to end."""


class Batches:
    """Batches as a broker validates them, as it opens them for another codec, and as they come in a fetch."""

    name = "batches"

    def __init__(self) -> None:
        self._bounds = Bounded()

    def make(self, rng: random.Random) -> list[bytes]:
        return [random_batch(rng) for _ in range(rng.choice([1, 1, 2]))]

    def run(self, lines: list[bytes]) -> None:
        with self._bounds:
            for batch in lines:
                try:
                    header = validate_batch(batch, decompress_max_bytes=OPENED_MAX)
                    assert header.last_offset_delta == header.record_count - 1
                except CorruptBatch:
                    pass
                jobs.validate(batch, True, OPENED_MAX)
                again = jobs.recompress(batch, Compression.ZSTD, None, OPENED_MAX)
                if not isinstance(again, str):
                    assert jobs.validate(again, False, OPENED_MAX) is None
            self._read_all(b"".join(lines))

    def _read_all(self, data: bytes) -> None:
        try:
            for _, batch in read_batches(data):
                for compacted in (False, True):
                    try:
                        list(read_records(batch, OPENED_MAX, compacted=compacted))
                    except CorruptBatch:
                        pass
        except CorruptBatch:
            pass

    def finish(self) -> None:
        """Nothing to check."""

    def close(self) -> None:
        """Nothing to end."""

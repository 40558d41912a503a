"""Record batches: sound ones, and ones that are damaged and then signed again, so that the CRC hides the damage."""

from __future__ import annotations

import random
import struct
from typing import Any

from penstock.protocol.compression import Compression
from penstock.protocol.record_batch import CRC_AT, HEADER_SIZE, LENGTH_AT, Record, batch_crc, build_batch
from tests.fuzz.mutation import damaged

NOW_MS = 1_700_000_000_000


def sound_batch(rng: random.Random) -> bytes:
    records = [_record(offset, rng) for offset in range(rng.choice([1, 1, 2, 3, 20]))]
    options: dict[str, Any] = {"compression": rng.choice(list(Compression))}
    if rng.random() < 0.3:
        options |= {"producer_id": rng.randrange(3), "producer_epoch": 0, "base_sequence": rng.randrange(4)}
    return build_batch(records, **options)


def _record(offset: int, rng: random.Random) -> Record:
    key, value = (rng.choice([None, b"", b"key", rng.randbytes(rng.randrange(200))]) for _ in range(2))
    headers = tuple((f"h{i}", rng.choice([None, b"", b"v"])) for i in range(rng.choice([0, 0, 1, 3])))
    return Record(offset, NOW_MS + rng.randrange(-5, 5), key, value, headers)


def random_batch(rng: random.Random) -> bytes:
    batch = sound_batch(rng)
    if rng.random() < 0.4:
        return batch
    records = damaged(batch[HEADER_SIZE:], rng) if rng.random() < 0.6 else batch[HEADER_SIZE:]
    header = damaged(batch[:HEADER_SIZE], rng) if rng.random() < 0.4 else batch[:HEADER_SIZE]
    out = bytearray(header + records)
    return bytes(out) if rng.random() < 0.2 else _signed(out)


def _signed(batch: bytearray) -> bytes:
    if len(batch) >= HEADER_SIZE:
        struct.pack_into(">i", batch, LENGTH_AT, len(batch) - 12)
        struct.pack_into(">I", batch, CRC_AT, batch_crc(batch))
    return bytes(batch)

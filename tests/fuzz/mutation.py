"""Damage: what random hands, broken software and clever people do to bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

BOUNDARIES = [0, 1, -1, 2, 127, 128, 255, 256, 32767, -32768, 65535, 2**31 - 1, -(2**31), 2**24, 2**63 - 1, -(2**63)]
SIZE_MAX = 1 << 20

Mutation = Callable[[bytearray, random.Random], None]


def _flip_a_bit(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set_a_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])


def _set_a_number(data: bytearray, rng: random.Random) -> None:
    """Big-endian, of some width, at one of the values where things go wrong."""
    width, layout = rng.choice([(1, ">B"), (2, ">H"), (4, ">I"), (8, ">Q")])
    if len(data) >= width:
        position = rng.randrange(len(data) - width + 1)
        struct.pack_into(layout, data, position, rng.choice(BOUNDARIES) % (1 << 8 * width))


def _nudge_a_byte(data: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(data))
    data[position] = (data[position] + rng.choice([-1, 1, 2, -2, 64])) % 256


def _cut_a_piece(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    del data[start : start + rng.choice([1, 1, 2, 4, 8, rng.randrange(1, 64)])]


def _cut_the_end(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _repeat_a_piece(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.randrange(1, 64)]
    data[start:start] = piece * rng.choice([1, 1, 2, 50])


def _insert_bytes(data: bytearray, rng: random.Random) -> None:
    position = rng.randrange(len(data) + 1)
    data[position:position] = rng.choice([rng.randbytes(rng.randrange(1, 9)), b"\xff" * 5, b"\x80" * 6, bytes(8)])


def _move_a_piece(data: bytearray, rng: random.Random) -> None:
    start, size = rng.randrange(len(data)), rng.randrange(1, 32)
    piece = data[start : start + size]
    del data[start : start + size]
    position = rng.randrange(len(data) + 1)
    data[position:position] = piece


MUTATIONS: list[Mutation] = [
    _flip_a_bit,
    _set_a_byte,
    _set_a_byte,
    _set_a_number,
    _set_a_number,
    _nudge_a_byte,
    _nudge_a_byte,
    _cut_a_piece,
    _cut_the_end,
    _repeat_a_piece,
    _insert_bytes,
    _move_a_piece,
]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Most often by one blow, so that what stands behind it is still reached."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3, 8])):
        if out:
            rng.choice(MUTATIONS)(out, rng)
    return bytes(out[:SIZE_MAX])


def spliced(one: bytes, other: bytes, rng: random.Random) -> bytes:
    """The beginning of one and the end of another."""
    return one[: rng.randrange(len(one) + 1)] + other[rng.randrange(len(other) + 1) :]

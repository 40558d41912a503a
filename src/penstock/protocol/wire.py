"""What compiled readers and writers call: varints, the limit on elements, and the ways in which bytes are wrong."""

from __future__ import annotations

from collections.abc import Sized
from typing import NoReturn


class DecodeError(ValueError):
    """The bytes are not a message of this type and version."""


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes (32 bits), and the position after it."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
        if shift > 28:
            break
    raise DecodeError("a varint is longer than 32 bits")


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_SMALL = [bytes((n,)) for n in range(0x80)]


def skip_tags(view: memoryview, position: int, end: int, budget: int) -> tuple[int, int]:
    """Over tagged fields that nobody declared: the position after them, and what is left of the budget."""
    count, position = read_uvarint(view, position)
    budget -= count
    if budget < 0:
        too_many_elements()
    for _ in range(count):
        _, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        position += size
        if position > end:
            refuse_length(size, "a tagged field")
    return position, budget


def too_many_elements() -> NoReturn:
    raise DecodeError("too many elements in one message")


def refuse_length(length: int, what: str) -> NoReturn:
    raise DecodeError(f"{what} must not be null" if length < 0 else f"{what} runs past the end")


def refuse_tag_size(what: str) -> NoReturn:
    raise DecodeError(f"the tagged field {what} does not have the size that it claims")


def part_size(part: Sized) -> int:
    return part.nbytes if isinstance(part, memoryview) else len(part)

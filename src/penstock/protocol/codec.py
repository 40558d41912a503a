"""Messages to bytes and back: the reader and the writer of a version are compiled on their first use.

A codec is Python source made from the declaration, so that nothing looks at the schema again; see `reader` and
`writer`. Every way in which bytes can be wrong ends in `DecodeError`.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

from penstock.protocol.reader import Reader, compile_reader
from penstock.protocol.schema import ELEMENTS_MAX, Message
from penstock.protocol.wire import DecodeError, part_size
from penstock.protocol.writer import Writer, compile_writer

__all__ = [
    "ELEMENTS_MAX",
    "DecodeError",
    "decode",
    "decode_versioned",
    "encode",
    "encode_bytes",
    "encode_sized",
    "encode_versioned",
    "part_size",
]

M = TypeVar("M", bound=Message)

_VERSION = struct.Struct(">h")
_readers: dict[tuple[type[Message], int], Reader] = {}
_writers: dict[tuple[type[Message], int], Writer] = {}


def decode(cls: type[M], data: memoryview | bytes, version: int, position: int = 0) -> M:
    """Bytes after the message's end are left alone, as Kafka does."""
    view = data if isinstance(data, memoryview) else memoryview(data)
    reader = _readers.get((cls, version)) or _reader(cls, version)
    try:
        message: M = reader(view, position)
    except DecodeError as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from None
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from None
    return message


def encode(message: Message, version: int) -> list[Any]:
    """The parts of the encoded message, in order. A part is a bytearray, or whatever stood in a records field."""
    return encode_sized(message, version)[0]


def encode_sized(message: Message, version: int) -> tuple[list[Any], int]:
    """The parts, and the bytes that they hold together."""
    cls = type(message)
    return (_writers.get((cls, version)) or _writer(cls, version))(message)


def encode_bytes(message: Message, version: int) -> bytes:
    return b"".join(encode(message, version))


def encode_versioned(message: Message, version: int) -> bytes:
    """As records of internal topics and consumers' metadata are stored: the version, then the message."""
    return _VERSION.pack(version) + encode_bytes(message, version)


def decode_versioned(cls: type[M], data: memoryview | bytes, *, newer_as_newest: bool = False) -> M:
    """`newer_as_newest` reads a version from the future as the newest known, for formats that only append."""
    if len(data) < _VERSION.size:
        raise DecodeError(f"{cls.__name__}: no version")
    version: int = _VERSION.unpack_from(data)[0]
    if newer_as_newest:
        version = min(version, cls.versions.last)
    return decode(cls, data, version, _VERSION.size)


def _reader(cls: type[Message], version: int) -> Reader:
    _check_version(cls, version)
    _readers[(cls, version)] = reader = compile_reader(cls, version)
    return reader


def _writer(cls: type[Message], version: int) -> Writer:
    _check_version(cls, version)
    _writers[(cls, version)] = writer = compile_writer(cls, version)
    return writer


def _check_version(cls: type[Message], version: int) -> None:
    if version not in cls.versions:
        raise DecodeError(f"{cls.__name__} has no version {version}")

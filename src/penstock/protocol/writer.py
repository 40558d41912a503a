"""Compiles a message's declaration to a function that writes one version of it.

The function gathers everything in one buffer and breaks it only where a records field stands: what stood there becomes
a part of its own, untouched, so that record batches are never copied on their way to a socket.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from penstock.protocol import wire
from penstock.protocol.schema import FRESH, Field, Message, Struct, Type
from penstock.protocol.source import Source, element_type, split_fields

Writer = Callable[[Any], tuple[list[Any], int]]

_NAMES = {"uvarint": wire.uvarint, "pack": struct.pack}


def compile_writer(cls: type[Message], version: int) -> Writer:
    out = Source("def write(o):", _NAMES)
    out.add("b = bytearray()", "parts = []", "size = 0")
    _Compilation(out, version, version in cls.flexible).write_struct("o", cls, 0)
    out.add("if b: parts.append(b)", "return parts, size + len(b)")
    writer: Writer = out.compile("write")
    return writer


class _Compilation:
    """In the source: `b` the buffer, `v` the value in hand, `n` its length; names that nest end in their depth."""

    def __init__(self, out: Source, version: int, flexible: bool) -> None:
        self.out = out
        self.version = version
        self.flexible = flexible
        self.buffer = "b"
        self.run: list[tuple[str, str]] = []  # fixed-size values not yet written: expression and format

    def flush(self) -> None:
        values = ", ".join(value for value, _ in self.run if value)
        if values:
            packed = struct.Struct(">" + "".join(fmt for _, fmt in self.run))
            self.out.add(f"{self.buffer} += {self.out.name(packed.pack)}({values})")
        elif self.run:
            self.out.add(f"{self.buffer}.append(0)")
        self.run.clear()

    def write_struct(self, source: str, cls: type[Struct], depth: int) -> None:
        plain, tagged = split_fields(cls, self.version)
        for name, f in plain:
            self.write_value(f"{source}.{name}", f.type, self.version in f.nullable, depth)
        if tagged:
            self.write_tags(source, tagged, depth)
        elif self.flexible:
            self.run.append(("", "x"))
        self.flush()

    def write_value(self, source: str, t: Type, nullable: bool, depth: int) -> None:
        if t.format:
            self.run.append((source, t.format))
            return
        if not nullable:
            self.out.add(f"v = {source}")
            self.write_sized(t, depth)
            return
        self.flush()
        self.out.add(f"v = {source}")
        with self.out.block("if v is None:"):
            if t.name == "struct":
                self.out.add(f"{self.buffer}.append(255)")
            elif self.flexible:
                self.out.add(f"{self.buffer}.append(0)")
            else:
                null = b"\xff" * (2 if t.name == "string" else 4)
                self.out.add(f"{self.buffer} += {null!r}")
        with self.out.block("else:"):
            if t.name == "struct":
                self.out.add(f"{self.buffer}.append(1)")
            self.write_sized(t, depth)
            self.flush()

    def write_sized(self, t: Type, depth: int) -> None:
        """What is in `v`, which is not null."""
        if t.name == "struct":
            self.out.add(f"o{depth + 1} = v")
            self.write_struct(f"o{depth + 1}", t.element, depth + 1)
            return
        if t.name == "string":
            self.out.add("v = v.encode()")
        if t.name == "records":
            self.out.add("r = v.nbytes if type(v) is memoryview else len(v)")
        self.write_length("r" if t.name == "records" else "len(v)", wide=t.name != "string")
        if t.name == "array":
            self.write_elements(element_type(t), depth)
        elif t.name == "records":
            assert self.buffer == "b", "records are never tagged"
            self.out.add("size += len(b) + r", "parts.append(b)", "parts.append(v)", "b = bytearray()")
        else:
            self.out.add(f"{self.buffer} += v")

    def write_length(self, length: str, wide: bool) -> None:
        if self.flexible:
            self.flush()
            add = f"{self.buffer}.append"
            self.out.add(f"n = {length} + 1", f"if n < 128: {add}(n)")
            self.out.add(f"elif n < 16384: {add}(n & 127 | 128); {add}(n >> 7)", f"else: {self.buffer} += uvarint(n)")
        else:
            self.run.append((length, "i" if wide else "h"))
            self.flush()

    def write_elements(self, element: Type, depth: int) -> None:
        if element.name == "uuid":
            self.out.add(f"{self.buffer} += b''.join(v)")
        elif element.format:
            self.out.add(f"if v: {self.buffer} += pack(f'>{{len(v)}}{element.format}', *v)")
        else:
            item = f"e{depth + 1}"
            with self.out.block(f"for {item} in v:"):
                if element.name == "struct":
                    self.write_struct(item, element.element, depth + 1)
                else:
                    self.write_value(item, element, False, depth)
                    self.flush()

    def write_tags(self, source: str, tagged: list[tuple[str, Field]], depth: int) -> None:
        """A tagged field is sent only where it differs from its default."""
        self.flush()
        sent = {name: _differs(f"{source}.{name}", f) for name, f in tagged}
        with self.out.block(f"if {' or '.join(sent.values())}:"):
            self.out.add(f"{self.buffer} += uvarint({' + '.join(f'bool({test})' for test in sent.values())})")
            for name, f in tagged:
                with self.out.block(f"if {sent[name]}:"):
                    outer, self.buffer = self.buffer, f"tag{depth}"
                    self.out.add(f"{self.buffer} = bytearray()")
                    self.write_value(f"{source}.{name}", f.type, self.version in f.nullable, depth)
                    self.flush()
                    self.out.add(f"{outer} += {wire.uvarint(f.tag)!r} + uvarint(len({self.buffer})) + {self.buffer}")
                    self.buffer = outer
        self.out.add(f"else: {self.buffer}.append(0)")


def _differs(source: str, f: Field) -> str:
    if f.default is None:
        return f"{source} is not None"
    return f"{source}" if f.default is FRESH else f"{source} != {f.default!r}"

"""Compiles a message's declaration to a function that reads one version of it.

Nested structs are read in place and a run of fixed-size fields is one `struct` call, which also takes the first bytes
of the length that comes next. The function never trusts a length: each is checked against what the frame still holds,
and elements are drawn from a budget, so that a small frame can't claim a large allocation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import repeat
from typing import Any

from penstock.protocol import wire
from penstock.protocol.schema import FRESH, Field, Message, Struct, Type
from penstock.protocol.source import Source, element_type, split_fields

Reader = Callable[[memoryview, int], Any]

_NAMES: dict[str, Any] = {
    "repeat": repeat,
    "read_uvarint": wire.read_uvarint,
    "skip_tags": wire.skip_tags,
    "too_many_elements": wire.too_many_elements,
    "refuse_length": wire.refuse_length,
    "refuse_tag_size": wire.refuse_tag_size,
    "unpack_from": struct.unpack_from,
}


def compile_reader(cls: type[Message], version: int) -> Reader:
    out = Source("def read(b, p):", _NAMES)
    out.add("end = len(b)", f"budget = {cls.elements_max}")
    _Compilation(out, version, version in cls.flexible).read_struct("o", cls, 0)
    out.add("return o")
    reader: Reader = out.compile("read")
    return reader


class _Compilation:
    """In the source: `b` the frame, `p` the position, `n` the length in hand; names that nest end in their depth."""

    def __init__(self, out: Source, version: int, flexible: bool) -> None:
        self.out = out
        self.version = version
        self.flexible = flexible
        self.run: list[tuple[str, str]] = []  # fixed-size values not yet read: target and format

    def flush(self) -> None:
        if not self.run:
            return
        packed = struct.Struct(">" + "".join(fmt for _, fmt in self.run))
        targets = "".join(f"{target}, " for target, _ in self.run)
        if packed.format == ">B":
            self.out.add(f"{targets[:-2]} = b[p]")
        else:
            self.out.add(f"{targets}= {self.out.name(packed.unpack_from)}(b, p)")
        self.out.add(f"p += {packed.size}")
        self.run.clear()

    def read_struct(self, target: str, cls: type[Struct], depth: int) -> None:
        self.flush()
        self.out.add(f"{target} = {self.out.name(cls.__new__)}({self.out.name(cls)})")
        self.read_fields(target, cls, depth)

    def read_fields(self, target: str, cls: type[Struct], depth: int) -> None:
        plain, tagged = split_fields(cls, self.version)
        carried = {name for name, _ in plain}
        for name, f in cls.fields.items():
            if name not in carried:
                self.out.add(f"{target}.{name} = {_default(self.out, f)}")
        for name, f in plain:
            self.read_value(f"{target}.{name}", f.type, self.version in f.nullable, name, depth)
        if self.flexible:
            self.read_tags(target, tagged, depth)
        self.flush()

    def read_value(self, target: str, t: Type, nullable: bool, what: str, depth: int) -> None:
        if t.format:
            self.run.append((target, t.format))
        elif t.name == "struct":
            self.read_nested(target, t.element, nullable, depth)
        else:
            self.read_length(wide=t.name != "string")
            if nullable:
                self.out.add(f"if n < 0: {target} = None")
                with self.out.block("else:"):
                    self.read_sized(target, t, what, depth)
            else:
                self.read_sized(target, t, what, depth)

    def read_nested(self, target: str, cls: type[Struct], nullable: bool, depth: int) -> None:
        inner = f"o{depth + 1}"
        if nullable:
            self.run.append(("n", "b"))
            self.flush()
            self.out.add(f"if n < 0: {target} = None")
            with self.out.block("else:"):
                self.read_struct(inner, cls, depth + 1)
                self.out.add(f"{target} = {inner}")
        else:
            self.read_struct(inner, cls, depth + 1)
            self.out.add(f"{target} = {inner}")

    def read_length(self, wide: bool) -> None:
        """Leaves the length in `n`, below 0 for null."""
        if self.flexible:
            self.run.append(("n", "B"))
            self.flush()
            self.out.add("if n > 127: n, p = read_uvarint(b, p - 1)", "n -= 1")
        else:
            self.run.append(("n", "i" if wide else "h"))
            self.flush()

    def read_sized(self, target: str, t: Type, what: str, depth: int) -> None:
        """The `n` bytes or elements at `p`."""
        if t.name == "array":
            self.out.add(f"if n < 0 or n > end - p: refuse_length(n, {what!r})")
            self.out.add("budget -= n", "if budget < 0: too_many_elements()")
            self.read_elements(target, element_type(t), what, depth)
            return
        value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[t.name]
        self.out.add("q = p + n", f"if n < 0 or q > end: refuse_length(n, {what!r})", f"{target} = {value}", "p = q")

    def read_elements(self, target: str, element: Type, what: str, depth: int) -> None:
        if element.format:
            size = struct.calcsize(">" + element.format)
            fmt = f"f'>{{n}}{element.format}'" if element.name != "uuid" else f"'>' + {element.format!r} * n"
            if size > 1:
                self.out.add(f"if n * {size} > end - p: refuse_length(n, {what!r})")
            self.out.add(f"{target} = list(unpack_from({fmt}, b, p))", f"p += n * {size}")
            return
        inner = f"o{depth + 1}"
        if element.name == "struct":
            cls = self.out.name(element.element)
            self.out.add(f"{target} = list(map({self.out.name(element.element.__new__)}, repeat({cls}, n)))")
            with self.out.block(f"for {inner} in {target}:"):
                self.read_fields(inner, element.element, depth + 1)
            return
        self.out.add(f"{target} = []", f"append = {target}.append")
        with self.out.block("for _ in range(n):"):
            self.read_value(inner, element, False, what, depth)
            self.out.add(f"append({inner})")

    def read_tags(self, target: str, tagged: list[tuple[str, Field]], depth: int) -> None:
        self.run.append(("n", "B"))
        self.flush()
        if not tagged:
            self.out.add("if n: p, budget = skip_tags(b, p - 1, end, budget)")
            return
        tag, stop = f"tag{depth}", f"stop{depth}"
        with self.out.block("if n:"):
            self.out.add("n, p = read_uvarint(b, p - 1)", "budget -= n", "if budget < 0: too_many_elements()")
            with self.out.block("for _ in range(n):"):
                self.out.add(f"{tag}, p = read_uvarint(b, p)", "n, p = read_uvarint(b, p)", f"{stop} = p + n")
                self.out.add(f"if {stop} > end: refuse_length(n, 'a tagged field')")
                for name, f in tagged:
                    with self.out.block(f"if {tag} == {f.tag}:"):
                        self.read_value(f"{target}.{name}", f.type, self.version in f.nullable, name, depth)
                        self.flush()
                        self.out.add(f"if p != {stop}: refuse_tag_size({name!r})")
                self.out.add(f"p = {stop}")


def _default(out: Source, f: Field) -> str:
    if f.default is not FRESH:
        return repr(f.default)
    return "[]" if f.type.name == "array" else f"{out.name(f.type.element)}()"

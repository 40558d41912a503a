"""Python source under construction, for the readers and writers that are compiled from a message's declaration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.protocol.schema import Field, Struct, Type


class Source:
    """The lines of one function, and the names it closes over."""

    def __init__(self, head: str, names: dict[str, Any]) -> None:
        self._lines = [head]
        self._names = dict(names)
        self._depth = 1

    def add(self, *lines: str) -> None:
        self._lines.extend("    " * self._depth + line for line in lines)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """What is added inside is the body of `head`."""
        self.add(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, value: Any) -> str:
        """A name by which the function finds `value`."""
        name = f"k{len(self._names)}"
        self._names[name] = value
        return name

    def compile(self, function: str) -> Any:
        exec("\n".join(self._lines), self._names)
        return self._names[function]


def split_fields(cls: type[Struct], version: int) -> tuple[list[tuple[str, Field]], list[tuple[str, Field]]]:
    """The fields that this version carries in order, and those it carries as tags."""
    carried = [(name, f) for name, f in cls.fields.items() if version in f.versions]
    tagged = sorted(((name, f) for name, f in carried if version in f.tagged), key=lambda item: item[1].tag)
    return [(name, f) for name, f in carried if version not in f.tagged], tagged


def element_type(t: Type) -> Type:
    """Of an array; a struct's class stands for the struct."""
    return t.element if isinstance(t.element, Type) else Type("struct", None, element=t.element)

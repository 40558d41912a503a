"""How a Kafka message is declared: one typed class, its fields in wire order, each with the versions that carry it.

    class TopicProduceData(Struct):
        name: str = field(STRING, versions="0-12")
        topic_id: bytes = field(UUID, versions="13+")
        partition_data: list[PartitionProduceData] = field(array(PartitionProduceData))

    class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
        ...

The declaration is the only description of a message: `codec` compiles it to a reader and a writer per version, and
nothing else in the tree knows the layout. A field that a version does not carry keeps its default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, dataclass_transform

ELEMENTS_MAX = 100_000  # of one message: array elements and tagged fields together
ZERO_UUID = bytes(16)
OWN_TAGS_FROM = 10_000  # of tagged fields that Kafka does not have; its own count from 0


class Versions(NamedTuple):
    """An inclusive range of versions; `NONE` holds nothing."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NONE = Versions(0, -1)
NEWEST = 32767


def versions(text: str | None) -> Versions:
    """'3-13', '9+', '0' or None."""
    if text is None:
        return NONE
    if text.endswith("+"):
        return Versions(int(text[:-1]), NEWEST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True)
class Type:
    """A wire type. `format` is its struct character where its size is fixed."""

    name: str
    default: Any
    format: str = ""
    element: Any = None  # of an array: a Type or a Struct class; of a struct: the class


BOOL = Type("bool", False, "?")
INT8 = Type("int8", 0, "b")
INT16 = Type("int16", 0, "h")
UINT16 = Type("uint16", 0, "H")
INT32 = Type("int32", 0, "i")
UINT32 = Type("uint32", 0, "I")
INT64 = Type("int64", 0, "q")
FLOAT64 = Type("float64", 0.0, "d")
UUID = Type("uuid", ZERO_UUID, "16s")
STRING = Type("string", "")
BYTES = Type("bytes", b"")
RECORDS = Type("records", None)  # raw record batches: a view of the frame when read, any sized part when written


def array(element: Type | type[Struct]) -> Type:
    return Type("array", None, element=element)


def struct(of: type[Struct]) -> Type:
    return Type("struct", None, element=of)


class Field(NamedTuple):
    type: Type
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any


FRESH: Any = object()  # the default of a list or a nested struct: a new one for each message


def field(
    type: Type,
    versions: str = "0+",
    *,
    nullable: str | None = None,
    tag: int = -1,
    tagged: str | None = None,
    default: Any = FRESH,
) -> Any:
    """`tag` makes the field a tagged one, in all its versions unless `tagged` narrows them.

    A tagged field that equals its default is not sent. A tagged struct is None by default, so that the many that are
    never sent are never made either.
    """
    if default is FRESH and type.name not in ("array", "struct"):
        default = type.default
    assert tag < 0 or type.name != "struct" or default is None, "an absent tagged struct is None"
    carried_as_tag = tagged if tagged is not None else versions if tag >= 0 else None
    return Field(type, _parse(versions), _parse(nullable), _parse(carried_as_tag), tag, default)


_parse = versions


class StructType(type):
    """Turns the declared fields into slots, and keeps their description in `fields`."""

    fields: dict[str, Field]

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> StructType:
        own = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in own:
            del namespace[key]
        namespace["__slots__"] = tuple(own)
        cls = super().__new__(mcs, name, bases, namespace, **options)
        cls.fields = own
        return cls


@dataclass_transform(kw_only_default=True)
class Struct(metaclass=StructType):
    """A value on the wire. Equality is by fields; the constructor takes keywords, each of which has a default."""

    fields: ClassVar[dict[str, Field]]

    def __init__(self, **values: Any) -> None:
        # The first call compiles the real constructor, so that declaring a message costs nothing at start.
        cls = type(self)
        cls.__init__ = _constructor(cls)  # type: ignore[method-assign]
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(self, f) == getattr(other, f) for f in self.fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f}={getattr(self, f, None)!r}' for f in self.fields)})"


def _constructor(cls: type[Struct]) -> Any:
    namespace: dict[str, Any] = {"FRESH": FRESH}
    parameters, body = ["self"], ["    pass"]
    for name, f in cls.fields.items():
        namespace[f"default_{name}"] = f.default
        parameters += ["*", f"{name}=default_{name}"] if len(parameters) == 1 else [f"{name}=default_{name}"]
        if f.default is FRESH:
            namespace[f"make_{name}"] = list if f.type.name == "array" else f.type.element
            body.append(f"    self.{name} = make_{name}() if {name} is FRESH else {name}")
        else:
            body.append(f"    self.{name} = {name}")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(body), namespace)
    return namespace["__init__"]


class Message(Struct):
    """A struct that stands alone: a request, a response, or a record of an internal topic.

    Requests and responses give `api_key`; what lives in internal topics leaves it out.
    """

    api_key: ClassVar[int]
    elements_max: ClassVar[int]
    versions: ClassVar[Versions]
    flexible: ClassVar[Versions]

    def __init_subclass__(
        cls, *, versions: str, flexible: str | None, api_key: int = -1, elements_max: int = ELEMENTS_MAX
    ) -> None:
        """`elements_max` bounds the elements of one message, where handling one costs more than reading it."""
        cls.api_key = api_key
        cls.elements_max = elements_max
        cls.versions = _parse(versions)
        cls.flexible = _parse(flexible)

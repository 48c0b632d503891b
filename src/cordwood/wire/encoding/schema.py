"""The notation in which `messages/*.txt` describe Kafka's requests and responses, and its parser.

A file describes one API:

    request 2-7 flexible 5+
      topics []{}
        name string
        configs []{} 5+ null
          ...
      timeout_ms int32 =60000
    response 2-7 flexible 5+
      ...

A field is `name type [versions] [null] [tag:N] [=default]`. Types are Kafka's; `{}` is a struct whose fields are
indented below it, and `[]` in front makes an array. Versions are `5`, `5+` or `2-4`, and those of the enclosing struct
if none are given. `null:2+` means that null is allowed in these versions only. The default of a field without one is 0,
false, empty or the zero id. Names are Kafka's, in snake case.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

_FOLDER: Final = Path(__file__).parent.parent / "messages"
_NO_LIMIT: Final = 1 << 15
_INDENT: Final = "  "
STRUCT: Final = "{}"


class Versions(NamedTuple):
    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NO_VERSIONS: Final = Versions(1, 0)


class Entity:
    """A decoded struct. Fields that its version does not have are there with their defaults."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Field(NamedTuple):
    name: str
    type: str
    """A primitive type or `STRUCT`."""
    is_array: bool
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    """The default value when reading. A writer also takes a mapping for a struct."""
    struct: "Struct | None"


class Struct(NamedTuple):
    fields: tuple[Field, ...]
    entity: type[Entity]


class Message(NamedTuple):
    versions: Versions
    flexible_from: int
    body: Struct


def load(api_name: str) -> dict[str, Message]:
    """The `request` and the `response` of an API."""
    return parse(api_name, (_FOLDER / f"{api_name}.txt").read_text())


def parse(api_name: str, text: str) -> dict[str, Message]:
    lines = [(_indentation(line), line.split()) for line in text.splitlines()]
    messages: dict[str, Message] = {}
    position = 0
    while position < len(lines):
        kind, versions, *flexible = lines[position][1]
        served = _versions(versions)
        flexible_from = _versions(flexible[1]).first if flexible[0] == "flexible" else _NO_LIMIT
        fields, position = _fields(lines, position + 1, 1, served)
        messages[kind] = Message(served, flexible_from, _struct(f"{api_name}{kind.capitalize()}", fields))
    return messages


def _indentation(line: str) -> int:
    return (len(line) - len(line.lstrip())) // len(_INDENT)


def _fields(lines: list[tuple[int, list[str]]], position: int, depth: int, outer: Versions) -> tuple[list[Field], int]:
    fields: list[Field] = []
    while position < len(lines) and lines[position][0] == depth:
        words = lines[position][1]
        versions = next((_versions(word) for word in words[2:] if word[0].isdigit()), outer)
        struct = None
        position += 1
        if words[1].endswith(STRUCT):
            inner, position = _fields(lines, position, depth + 1, versions)
            struct = _struct(words[0], inner)
        fields.append(_field(words, versions, struct))
    return fields, position


def _field(words: list[str], versions: Versions, struct: Struct | None) -> Field:
    name, kind, *rest = words
    is_array = kind.startswith("[]")
    kind = kind.removeprefix("[]")
    nullable, tag, default = NO_VERSIONS, None, _default(kind, is_array, struct)
    for word in rest:
        if word == "null":
            nullable = versions
        elif word.startswith("null:"):
            nullable = _versions(word.removeprefix("null:"))
        elif word.startswith("tag:"):
            tag = int(word.removeprefix("tag:"))
        elif word.startswith("="):
            default = _given_default(kind, word[1:])
        else:
            assert word[0].isdigit(), words
    return Field(name, kind, is_array, versions, nullable, tag, default, struct)


def _struct(name: str, fields: list[Field]) -> Struct:
    # Defaults are class attributes: an entity holds only the fields of its version, and still has every attribute.
    return Struct(tuple(fields), type(name, (Entity,), {field.name: field.default for field in _each_once(fields)}))


def _each_once(fields: list[Field]) -> Iterator[Field]:
    seen: set[str] = set()
    for field in fields:
        assert field.name not in seen, field.name
        seen.add(field.name)
        yield field


def _versions(text: str) -> Versions:
    if text.endswith("+"):
        return Versions(int(text[:-1]), _NO_LIMIT)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


def _default(kind: str, is_array: bool, struct: Struct | None) -> Any:
    if is_array:
        return ()
    if struct is not None:
        return struct.entity()
    return {"string": "", "bytes": b"", "records": None, "bool": False, "float64": 0.0, "uuid": None}.get(kind, 0)


def _given_default(kind: str, text: str) -> Any:
    if text == "null":
        return None
    if kind == "bool":
        return text == "true"
    return text if kind == "string" else float(text) if kind == "float64" else int(text)

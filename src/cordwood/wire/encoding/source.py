"""Functions that are written as source and compiled: the form of readers and writers of structs."""

from struct import Struct as Layout
from typing import Any, Final

from cordwood.wire.encoding.schema import Field, Struct

FIXED: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}
"""Types with a fixed number of bytes, and their format letters of `struct`."""


class Source:
    """A function that is being written: its lines, and the objects that they name."""

    def __init__(self, signature: str, names: dict[str, Any]) -> None:
        self._signature = signature
        self._lines: list[str] = []
        self._names = dict(names)
        self._variables = 0

    def line(self, text: str, depth: int = 0) -> None:
        self._lines.append("    " * (depth + 1) + text)

    def name(self, thing: Any) -> str:
        """The name of this object in the generated lines."""
        called = f"_{len(self._names)}"
        self._names[called] = thing
        return called

    def variable(self, kind: str) -> str:
        """A name that no other variable of the function has."""
        self._variables += 1
        return f"{kind}_{self._variables}"

    def function(self, what: str) -> Any:
        source = f"def made({self._signature}):\n" + "\n".join(self._lines) + "\n"
        exec(compile(source, f"<{what}>", "exec"), self._names)
        return self._names["made"]


def is_fixed(field: Field) -> bool:
    return field.type in FIXED and not field.is_array


def layout_of(fields: list[Field]) -> Layout:
    return Layout(">" + "".join(FIXED[field.type] for field in fields))


def plain_fields(struct: Struct, version: int) -> list[Field]:
    return [field for field in struct.fields if version in field.versions and field.tag is None]


def tagged_fields_of(struct: Struct, version: int) -> list[Field]:
    tagged = [field for field in struct.fields if version in field.versions and field.tag is not None]
    return sorted(tagged, key=lambda field: field.tag or 0)

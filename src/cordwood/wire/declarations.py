"""Writes the types of all messages: `message_types/*.py` and `api_keys.pyi`, made from `messages/*.txt`.

`python -m cordwood.wire.declarations`, or `make types`. For each API there are

- `X.Request` and `X.Response`, with a class for each struct in them: what `decode_request` and `decode_response` make;
- `X.Answer`, the function that answers a request, with a TypedDict for each struct of the response;
- `X` itself, which stands for all three in `Request[X]` and `ApiKey[X]`.

Struct classes are called after their field (`X.RequestTopic`), in the singular for an element of an array. Two structs
of a message with the same name and the same fields are one class.
"""

from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Final

from cordwood.wire.api_keys import ApiKey
from cordwood.wire.apis import APIS
from cordwood.wire.encoding.schema import Field, Struct, load

FOLDER: Final = Path(__file__).parent
TYPES: Final = "message_types"
_INDENT: Final = "    "

_PRIMITIVES: Final = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | None",
    "float64": "float",
    "uuid": "TopicId | None",
}
"""Types of values; all others are int. The zero id is read as None."""
_UNCHANGED: Final = ("data", "status", "entity", "result")
"""Last words of names of arrays that have no plural."""


class _Kind:
    """One way to see the structs of a message: as read (`Request`, `Response`) or as written (`Answer`)."""

    def __init__(self, api_name: str, prefix: str, base: str, array: str) -> None:
        self.api_name = api_name
        self.prefix = prefix
        self.base = base
        self.array = array
        self.classes: dict[str, list[str]] = {}
        """The lines of each class, by name; a class stands after the classes that it names."""

    def lines_of(self, struct: Struct, parent: str) -> list[str]:
        return [f"{field.name}: {self.type_of(field, parent)}" for field in struct.fields]

    def type_of(self, field: Field, parent: str) -> str:
        value = self._declare(field, parent) if field.struct else _PRIMITIVES.get(field.type, "int")
        if field.is_array:
            value = f"{self.array}[{value}]"
        may_be_null = field.nullable.first <= field.nullable.last or field.default is None
        return f"{value} | None" if may_be_null and not value.endswith("| None") else value

    def _declare(self, field: Field, parent: str) -> str:
        assert field.struct is not None
        own = _camel(_singular(field.name) if field.is_array else field.name)
        lines = self.lines_of(field.struct, own)
        for name in (f"{self.prefix}{own}", f"{self.prefix}{parent}{own}"):
            if self.classes.setdefault(name, lines) == lines:
                return f"{self.api_name}.{name}"
        raise AssertionError(f"{self.api_name}{self.prefix} has three structs called {own}")

    def text(self) -> Iterator[str]:
        for name, lines in self.classes.items():
            yield "\n".join([f"class {name}({self.base}):", *(f"    {line}" for line in lines or ["pass"])])


def declarations_of(api_name: str) -> str:
    """The module with the types of one API."""
    messages = load(api_name)
    classes: list[str] = []
    for message in ("Request", "Response"):
        read = _Kind(api_name, message, "Entity", "Sequence")
        read.classes[message] = read.lines_of(messages[message.lower()].body, "")
        classes += read.text()
    written = _Kind(api_name, "Answer", "TypedDict, total=False", "Array")
    lines = written.lines_of(messages["response"].body, "")
    classes += [*written.text(), _function("Answer", lines)]
    types = "".join(f'        "{api_name}.{message}",\n' for message in ("Request", "Answer", "Response"))
    code = indent("\n\n".join(classes), _INDENT)
    head = f'"""Generated from `messages/{api_name}.txt` by `make types`."""\n\nfrom __future__ import annotations\n\n'
    return f"{head}{_imports(code)}\n\n\nclass {api_name}(\n    ApiTypes[\n{types}    ]\n):\n{code}\n"


def _function(name: str, lines: list[str]) -> str:
    arguments = "".join(f"        {line} = ...,\n" for line in lines)
    signature = f"\n        self,\n        *,\n{arguments}    " if lines else "self"
    return f"class {name}(Protocol):\n    def __call__({signature}) -> None: ..."


def _imports(code: str) -> str:
    typing = [name for name in ("Protocol", "TypedDict") if f"({name}" in code]
    types = ["ApiTypes", "Array"] if "Array[" in code else ["ApiTypes"]
    ours = ["from cordwood.model.identifiers import TopicId"] if "TopicId" in code else []
    ours += [
        f"from cordwood.wire.api_types import {', '.join(types)}",
        "from cordwood.wire.encoding.schema import Entity",
    ]
    standard = ["from collections.abc import Sequence"] if "Sequence[" in code else []
    standard.append(f"from typing import {', '.join(typing)}")
    return "\n".join(standard) + "\n\n" + "\n".join(ours)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _singular(name: str) -> str:
    if name.endswith(_UNCHANGED):
        return name
    if name.endswith("ies"):
        return name.removesuffix("ies") + "y"
    return name.removesuffix("es" if name.endswith("ches") else "s")


def keys_stub() -> str:
    """`api_keys.pyi`: `ApiKey` as the type checker sees it, with the types of its API on each key."""
    imports = sorted(f"from cordwood.wire.{TYPES}.{_module(key)} import {APIS[key].name}\n" for key in ApiKey)
    keys = "".join(f"    {key.name}: ClassVar[ApiKey[{APIS[key].name}]]\n" for key in ApiKey)
    return (
        '"""Generated from `api_keys.py` by `make types`: each key names the types of its API\'s messages."""\n\n'
        "from collections.abc import Iterator\nfrom typing import ClassVar, Generic\n\n"
        f"from cordwood.wire.api_types import Asked_co\n{''.join(imports)}\n"
        "class _Keys(type):\n"
        "    def __iter__(cls) -> Iterator[ApiKey]: ...\n\n"
        f"class ApiKey(int, Generic[Asked_co], metaclass=_Keys):\n    name: str\n    value: int\n{keys}"
    )


def _module(key: ApiKey) -> str:
    return key.name.lower()


def generated_files() -> dict[Path, str]:
    """All generated files, by their path in this folder."""
    files = {Path(TYPES, f"{_module(key)}.py"): declarations_of(APIS[key].name) for key in ApiKey}
    files[Path(TYPES, "__init__.py")] = (
        '"""The types of all messages, one file for each API: generated by `make types`, imported for types alone."""\n'
    )
    files[Path("api_keys.pyi")] = keys_stub()
    return files


def write_files(folder: Path = FOLDER) -> None:
    files = generated_files()
    for path in (folder / TYPES).glob("*.py"):
        if path.relative_to(folder) not in files:
            path.unlink()
    for path, text in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    write_files()

"""Response entities from plain values: one dict serves every version of an API.

kio has a class per message and version. A handler says what it knows under the newest version's field names;
this module takes from it what the requested version has room for, and converts error codes and durations.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from cordwood.model.errors import ErrorCode
from cordwood.wire.apis import APIS
from cordwood.wire.requests import response_module

Values = Mapping[str, Any]
Build = Callable[[Values], Any]

NO_DELAY = timedelta(0)


def response_entity(api_key: int, version: int, values: Values) -> Any:
    """The kio response entity of this API and version, made from these values."""
    return _response_builder(api_key, version)(values)


@cache
def _response_builder(api_key: int, version: int) -> Build:
    return _builder(getattr(response_module(api_key, version), f"{APIS[api_key].name}Response"))


@cache
def _builder(entity_type: type[Any]) -> Build:
    converters: list[tuple[str, Callable[[Any], Any], Any]] = []
    for field in fields(entity_type):
        default = field.default
        if default is MISSING and field.name == "throttle_time":
            default = NO_DELAY
        converters.append((field.name, _converter(field.type, field.metadata.get("kafka_type")), default))

    def build(values: Values) -> Any:
        arguments = {}
        for name, convert, default in converters:
            if name in values:
                arguments[name] = convert(values[name])
            elif default is not MISSING:
                arguments[name] = default
            else:
                raise KeyError(f"{entity_type.__qualname__} v{entity_type.__version__} needs {name!r}")
        return entity_type(**arguments)

    return build


def _converter(annotation: Any, kafka_type: str | None) -> Callable[[Any], Any]:
    if get_origin(annotation) in (Union, UnionType):
        inner = next(part for part in get_args(annotation) if part is not type(None))
        convert = _converter(inner, kafka_type)
        return lambda value: None if value is None else convert(value)
    if get_origin(annotation) is tuple:
        element = _converter(get_args(annotation)[0], kafka_type)
        return lambda values: tuple(element(value) for value in values)
    if is_dataclass(annotation):
        assert isinstance(annotation, type)
        return _builder(annotation)
    if kafka_type == "error_code":
        return _error_code
    if kafka_type in ("timedelta_i32", "timedelta_i64"):
        return lambda value: timedelta(milliseconds=value)
    return lambda value: value


@cache
def _error_code(code: ErrorCode) -> Any:
    from kio.schema.errors import ErrorCode as KioErrorCode  # kio is slow to import: only when a response needs it

    try:
        return KioErrorCode(int(code))
    except ValueError:  # newer than kio's table
        return KioErrorCode(int(ErrorCode.UNKNOWN_SERVER_ERROR))

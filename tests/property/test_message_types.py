"""The codecs make what `wire/message_types` declares: exactly these attributes, with values of these types."""

import random
import uuid
from collections.abc import Sequence
from importlib import import_module
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from tests.property.test_request_values import Asking
from tests.seeds import examples

from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.declarations import TYPES
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.schema import Entity, Message, load

PER_VERSION = examples(12)


def declared(key: ApiKey, kind: str) -> Any:
    module = import_module(f"cordwood.wire.{TYPES}.{key.name.lower()}")
    return getattr(getattr(module, APIS[key].name), kind.capitalize())


def check(value: object, kind: Any, where: str) -> None:
    if get_origin(kind) is UnionType:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
        if value is None:
            return
    if get_origin(kind) is Sequence:
        assert isinstance(value, list | tuple), where
        for element in value:
            check(element, get_args(kind)[0], where)
    elif issubclass(kind, Entity):
        assert isinstance(value, Entity), where
        check_entity(value, kind, where)
    else:
        assert type(value) is kind, f"{where}: {value!r} is no {kind.__name__}"


def check_entity(entity: Entity, kind: type, where: str) -> None:
    hints = get_type_hints(kind)
    attributes = {name for name in vars(type(entity)) if not name.startswith("__")}
    assert attributes == set(hints) >= set(vars(entity)), where
    for name, hint in hints.items():
        check(getattr(entity, name), hint, f"{where}.{name}")


def decoded(message: Message, version: int, seed: int) -> Entity:
    chance = random.Random(seed)
    made_up = Asking(chance, version, version >= message.flexible_from, uuid.UUID(int=chance.getrandbits(128)))
    parts: list[bytes] = []
    writer(message, version)(made_up.body(message.body), parts.append)
    found, _ = reader(message, version)(b"".join(parts), 0)
    assert isinstance(found, Entity)
    return found


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_a_decoded_message_has_the_declared_attributes_and_types(key: ApiKey, kind: str) -> None:
    api, message, expected = APIS[key], load(APIS[key].name)[kind], declared(key, kind)
    for version in range(api.min_version, api.max_version + 1):
        for seed in range(PER_VERSION):
            check_entity(decoded(message, version, seed), expected, f"{api.name} v{version}")


def test_an_attribute_of_another_type_is_found() -> None:
    body = decoded(load("Heartbeat")["request"], 4, 1)
    body.group_id = None  # type: ignore[attr-defined]
    with pytest.raises(AssertionError, match="group_id: None is no str"):
        check_entity(body, declared(ApiKey.HEARTBEAT, "request"), "Heartbeat")

"""Every message of every API, read and written after its schema, agrees with kio in every version that kio has."""

from collections import OrderedDict
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from tests.property.kio_entities import (
    ALL_VERSIONS,
    decoded,
    encoded,
    entity_type,
    epoch_ms,
    milliseconds,
    random_entity,
    versions_of,
)

from cordwood.wire.apis import APIS, flexible
from cordwood.wire.encoding.codec import reader, writer
from cordwood.wire.encoding.schema import Entity, load

KEYS = sorted({key for key, _ in ALL_VERSIONS})

RENAMED_IN_KAFKA = {
    ("id_", "id"),
    ("generation_id", "generation_id_or_member_epoch"),
    ("acceptable_recovery_lag", "acceptable_recovery_lag_legacy"),
}
"""Fields with another name in kio than in the schemas of Kafka 4.4."""


def assert_same(ours: Any, kios: Any) -> None:
    """kio has durations and moments where Kafka has milliseconds, and drops the unit from their names."""
    if is_dataclass(kios):
        assert isinstance(ours, Entity)
        matched = set()
        for field in fields(kios):
            name = _our_name(ours, field.name)
            matched.add(name)
            assert_same(getattr(ours, name), getattr(kios, field.name))
        assert matched.issuperset(ours.__dict__)
    elif isinstance(kios, tuple):
        assert len(ours) == len(kios)
        for our_element, kio_element in zip(ours, kios, strict=True):
            assert_same(our_element, kio_element)
    elif isinstance(kios, timedelta):
        assert ours == milliseconds(kios)
    elif isinstance(kios, datetime):
        assert ours == epoch_ms(kios)
    elif kios is None:
        # In a moment -1 stands for none.
        assert ours in (None, -1)
    else:
        assert ours == kios


def _our_name(ours: Entity, kio_name: str) -> str:
    renamed = [ours_name for name, ours_name in RENAMED_IN_KAFKA if name == kio_name]
    return next(name for name in (*renamed, kio_name, f"{kio_name}_ms") if hasattr(ours, name))


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", KEYS)
def test_what_kio_writes_is_read_and_written_again_unchanged(key: int, kind: str) -> None:
    message = load(APIS[key].name)[kind]
    random = Random(f"{key} {kind}")
    for version in versions_of(key):
        read, write = reader(message, version), writer(message, version)
        for _ in range(4):
            entity = random_entity(random, entity_type(key, version, kind))
            body = encoded(entity)
            ours, end = read(body, 0)
            assert end == len(body)
            parts: list[bytes] = []
            write(ours, parts.append)
            assert b"".join(parts) == body
            assert_same(ours, decoded(key, version, kind, body))


@pytest.mark.parametrize("kind", ["request", "response"])
@pytest.mark.parametrize("key", KEYS)
def test_an_answer_that_says_nothing_is_all_defaults(key: int, kind: str) -> None:
    """An empty mapping can be written in every version, and kio reads the defaults of Kafka's schemas from it."""
    message = load(APIS[key].name)[kind]
    for version in versions_of(key):
        parts: list[bytes] = []
        writer(message, version)({}, parts.append)
        body = b"".join(parts)
        ours, _ = reader(message, version)(body, 0)
        assert_same(ours, decoded(key, version, kind, body))
        for name, default in type(ours).__dict__.items():
            if name in ours.__dict__ and not isinstance(default, Entity):
                assert ours.__dict__[name] == (list(default) if isinstance(default, tuple) else default)


def test_any_mapping_is_written_as_a_dict_is() -> None:
    message = load("OffsetCommit")["response"]
    written: list[bytes] = []
    for mapping in (dict, OrderedDict, MappingProxyType):
        parts: list[bytes] = []
        topic = mapping({"name": "orders", "partitions": [mapping({"partition_index": 3, "error_code": 7})]})
        writer(message, 8)(mapping({"topics": [topic]}), parts.append)
        written.append(b"".join(parts))
    assert b"orders" in written[0]
    assert written == [written[0]] * 3


def test_every_api_in_the_table_has_a_schema_for_all_its_versions() -> None:
    for api in APIS.values():
        for message in load(api.name).values():
            assert message.versions.first == api.min_version, api
            assert message.versions.last >= api.max_version, api
            for version in range(api.min_version, api.max_version + 1):
                assert (version >= message.flexible_from) == flexible(api.key, version), api

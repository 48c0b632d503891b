"""The broker survives requests that are well formed and make no sense: any value in any field, at the edges first.

Frames with wrong bytes are fuzzed elsewhere. Here every request can be read, and its values reach the handlers, the
coordinators and the log, also by way of later answers, where an exception ends the broker.
"""

import random
import uuid
from typing import Any

import pytest
from simulation.world.world import World

from cordwood.node.apis import SERVED
from cordwood.records.build import build_batch
from cordwood.wire.apis import APIS, ApiKey
from cordwood.wire.encoding.schema import STRUCT, Field, Message, Struct, load

REQUESTS = 2000
PER_LIFE = 40
NAMES = (
    *("orders", "__consumer_offsets", "__transaction_state", "group", "writer", "family:f", "family:f/0"),
    *("consumer", "range", "uniform", "retention.ms", "cleanup.policy", "compact", "-1", ".*", "(", ""),
)
LENGTHS = (1, 249, 250, 1024, 1025, 16_000, 32_767)
NUMBERS = (0, 0, 0, 1, 1, 2, 3, -1, -2, -3, 100, 6000)
BATCH = bytes(build_batch([(0, b"key", b"value", ())]))


class Asking:
    """Makes up the body of a request."""

    def __init__(self, chance: random.Random, version: int, flexible: bool, topic_id: uuid.UUID) -> None:
        self.chance = chance
        self.version = version
        self.lengths = LENGTHS
        self.topic_id = topic_id

    def body(self, struct: Struct) -> dict[str, Any]:
        return {field.name: self.value(field) for field in struct.fields if self.has(field)}

    def has(self, field: Field) -> bool:
        return self.version in field.versions and (field.tag is None or self.chance.random() < 0.3)

    def value(self, field: Field) -> Any:
        if self.version in field.nullable and self.chance.random() < 0.2:
            return None
        if field.is_array:
            return [self.one(field) for _ in range(self.chance.choice((0, 1, 1, 1, 2, 3)))]
        return self.one(field)

    def one(self, field: Field) -> Any:
        choose = self.chance.choice
        match field.type:
            case kind if kind == STRUCT:
                assert field.struct is not None
                return self.body(field.struct)
            case "string":
                return choose(NAMES) if self.chance.random() < 0.7 else choose(("x", "\0", "'")) * choose(self.lengths)
            case "bytes" | "records":
                return choose((b"", bytes(10), bytes(40_000), BATCH))
            case "bool":
                return choose((True, False))
            case "float64":
                return choose((0.0, -1.5, float("nan"), float("inf")))
            case "uuid":
                return choose((None, uuid.UUID(int=1), self.topic_id))
            case kind:
                bits, signed = int(kind.removeprefix("u").removeprefix("int")), not kind.startswith("u")
                lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
                return min(max(choose((*NUMBERS, lowest, highest, highest - 1)), lowest), highest)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_request_asks_for_the_broker_goes_on(seed: int) -> None:
    chance = random.Random(seed)
    messages: dict[int, Message] = {key: load(APIS[key].name)["request"] for key in SERVED}
    for life in range(REQUESTS // PER_LIFE):
        world = World(seed=life).start()
        topic = {"name": "orders", "num_partitions": 2, "replication_factor": 1}
        topic_id = world.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000).topics[0].topic_id
        assert topic_id is not None
        for _ in range(PER_LIFE):
            key = chance.choice(sorted(SERVED))
            api, message = SERVED[key], messages[key]
            version = chance.randint(api.min_version, api.max_version)
            asking = Asking(chance, version, version >= message.flexible_from, topic_id)
            world.begin(ApiKey(key), version, **asking.body(message.body))
            if chance.random() < 0.2:
                world.advance(chance.choice((10, 1000, 20_000)))
        assert world.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        world.kill()

"""The sentences that tests of the node are made of: topics, batches, produces and fetches over the wire."""

from typing import Any

from simulation.world.exchange import Exchange
from simulation.world.world import World

from cordwood.cluster.metadata.image import TopicImage
from cordwood.model.errors import ErrorCode
from cordwood.records.batch import batches_in
from cordwood.records.build import build_batch
from cordwood.records.records import records_in
from cordwood.wire.apis import ApiKey

PLENTY = 1 << 20
SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER = 2, 4


def create_topic(world: World, name: str = "orders", partitions: int = 1, **configs: str) -> TopicImage:
    """Configs by their names with "_" for ".": `segment_bytes="100"`."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }
    answer = world.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == 0, answer
    return world.node.image.topics[name]


def delete_topic(world: World, name: str) -> None:
    answer = world.ask(ApiKey.DELETE_TOPICS, 5, topic_names=[name], timeout_ms=1000)
    assert answer.responses[0].error_code == 0, answer


def alter_topic(world: World, name: str, **configs: str) -> ErrorCode:
    changes = [
        {"name": key.replace("_", "."), "config_operation": SET, "value": value} for key, value in configs.items()
    ]
    resource = {"resource_type": TOPIC, "resource_name": name, "configs": changes}
    answer = world.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    return ErrorCode(answer.responses[0].error_code)


def batch_of(world: World, *values: bytes | None, key: bytes | None = b"key", **options: Any) -> bytes:
    now_ms = world.clock.wall_ms
    return bytes(build_batch([(now_ms, key, value, ()) for value in values or (b"value",)], **options))


def produce_values(
    topic: str | TopicImage, *batches: bytes | None, acks: int = -1, timeout_ms: int = 1000, index: int = 0
) -> dict[str, Any]:
    """A request with one batch for each of the partitions from `index` on."""
    entry: dict[str, Any] = {"name": topic} if isinstance(topic, str) else {"topic_id": topic.topic_id}
    entry["partition_data"] = [{"index": place, "records": data} for place, data in enumerate(batches, index)]
    return {"acks": acks, "timeout_ms": timeout_ms, "topic_data": [entry]}


def produce(
    world: World, topic: str | TopicImage, *batches: bytes | None, version: int = 9, **options: Any
) -> list[Any]:
    """The answers of the partitions."""
    answer = world.ask(ApiKey.PRODUCE, version, **produce_values(topic, *batches, **options))
    return list(answer.responses[0].partition_responses)


def fill(world: World, topic: str, *values: bytes, index: int = 0) -> None:
    """One batch for each value."""
    for value in values:
        (answer,) = produce(world, topic, batch_of(world, value), index=index)
        assert answer.error_code == 0, answer


def fetch_values(*asked: tuple[str | TopicImage, int, int], **options: Any) -> dict[str, Any]:
    """A fetch of these (topic, partition, offset); `max_bytes_each` and the epochs are said of each partition."""
    topics: dict[Any, dict[str, Any]] = {}
    partition_options = {
        "partition_max_bytes": options.pop("max_bytes_each", PLENTY),
        "current_leader_epoch": options.pop("current_leader_epoch", -1),
        "last_fetched_epoch": options.pop("last_fetched_epoch", -1),
    }
    for topic, index, offset in asked:
        name = topic if isinstance(topic, str) else topic.topic_id
        field = "topic" if isinstance(topic, str) else "topic_id"
        entry = topics.setdefault(name, {field: name, "partitions": []})
        entry["partitions"].append({"partition": index, "fetch_offset": offset, **partition_options})
    return {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": PLENTY, "topics": list(topics.values())} | options


def fetch(world: World, *asked: tuple[str | TopicImage, int, int], version: int = 12, **options: Any) -> Any:
    return world.ask(ApiKey.FETCH, version, **fetch_values(*asked, **options))


def begin_fetch(world: World, *asked: tuple[str | TopicImage, int, int], version: int = 12, **options: Any) -> Exchange:
    return world.begin(ApiKey.FETCH, version, **fetch_values(*asked, **options))


def only(answer: Any) -> Any:
    """The one partition in the answer to a fetch."""
    ((part,),) = [topic.partitions for topic in answer.responses]
    return part


def values_in(part: Any) -> list[bytes | None]:
    data = part.records or b""
    return [
        record.value
        for position, header in batches_in(data)
        for record in records_in(data[position : position + header.size])
    ]


def error(code: int) -> str:
    return ErrorCode(code).name

"""Facts about topics, as their brokers tell them: settings, and bytes of partitions' logs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.client.brokers import Brokers
from cordwood.client.errors import UnknownTopic, error_code, refusal
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition
from cordwood.wire.apis import ApiKey

if TYPE_CHECKING:
    from cordwood.wire.message_types.describe_configs import DescribeConfigs

_TOPIC: Final = 2


def describe_configs(brokers: Brokers, topic: str) -> dict[str, str]:
    """Every setting of the topic that is not secret, defaults included."""
    values = {"resources": [{"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": None}]}

    def attempt() -> dict[str, str]:
        link = brokers.any()
        response = link.ask(ApiKey.DESCRIBE_CONFIGS, values)
        found: dict[str, str] = {}
        for result in response.results:
            code = error_code(result.error_code)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise UnknownTopic(topic, f"topic {topic} does not exist")
            if code:
                raise refusal(code, link.was_asked(ApiKey.DESCRIBE_CONFIGS, f"of topic {topic}"), result.error_message)
            found.update(_values(result.configs))
        return found

    return brokers.retried(attempt)


def log_sizes(brokers: Brokers, topics: Collection[str]) -> dict[TopicPartition, int]:
    """The size of each partition, by its largest replica. Partitions whose brokers do not tell are left out."""
    described = brokers.describe(topics)
    asked = [
        {"topic": topic.name, "partitions": [partition.index for partition in topic.partitions]}
        for topic in described.values()
    ]
    sizes: dict[TopicPartition, int] = {}
    for link in brokers.all():
        for directory in link.ask(ApiKey.DESCRIBE_LOG_DIRS, {"topics": asked}).results:
            for topic in directory.topics:
                for each in topic.partitions:
                    if not each.is_future_key and each.partition_size >= 0:
                        place = TopicPartition(topic.name, each.partition_index)
                        sizes[place] = max(sizes.get(place, 0), each.partition_size)
    return sizes


def _values(configs: Sequence[DescribeConfigs.ResponseConfig]) -> dict[str, str]:
    return {config.name: config.value for config in configs if config.value is not None}

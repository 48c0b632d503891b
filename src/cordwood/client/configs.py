"""Settings of topics, as the cluster applies them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cordwood.client.brokers import Brokers
from cordwood.client.errors import UnknownTopic, error_code, refusal
from cordwood.model.errors import ErrorCode
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


def _values(configs: Sequence[DescribeConfigs.ResponseConfig]) -> dict[str, str]:
    return {config.name: config.value for config in configs if config.value is not None}

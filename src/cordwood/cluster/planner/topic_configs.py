"""Checks the settings of a topic as Kafka does, and changes of a topic against the declared scope of its order."""

from collections.abc import Iterable, Mapping

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.broker_settings import check_together
from cordwood.model.settings.configuration import unknown_name
from cordwood.model.settings.setting import InvalidSetting
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS, TopicSettings, resolve

CHARACTERS_PER_SETTING = 250
"""Characters of texts that cost as much as a setting of ordinary length: a list is split and each part is checked."""


def text_weight(texts: Mapping[str, str | None] | Iterable[tuple[str, str | None]]) -> int:
    """The cost of checking these settings, in settings of ordinary length; at least 1."""
    pairs = texts.items() if isinstance(texts, Mapping) else texts
    return 1 + sum(len(name) + len(text or "") for name, text in pairs) // CHARACTERS_PER_SETTING


def check_overrides(image: ClusterImage, configs: Mapping[str, str | None]) -> tuple[dict[str, str], TopicSettings]:
    """The overrides, and the settings with the broker's defaults. Raises INVALID_CONFIG for a bad override."""
    missing = sorted(name for name, text in configs.items() if text is None)
    if missing:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}"
        )
    overrides = {name: text for name, text in configs.items() if text is not None}
    for name in overrides:
        if name not in TOPIC_SETTINGS:
            raise ProtocolError(ErrorCode.INVALID_CONFIG, unknown_name("topic", name, TOPIC_SETTINGS))
    try:
        settings = resolve(overrides, image.settings.topic_defaults)
        check_together(settings)
    except InvalidSetting as error:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return overrides, settings


def check_scope(name: str, scope: str, partition_count: int, code: ErrorCode = ErrorCode.INVALID_PARTITIONS) -> None:
    """Refuses a scope that a topic of this many partitions cannot keep; `code` blames the request's part."""
    if scope == "global" and partition_count != 1:
        raise ProtocolError(
            code,
            f"Topic '{name}' has ordering.scope=global, which needs exactly one partition: between partitions there is "
            f"no order. {partition_count} partitions would be ordered per partition only.",
        )


def check_partition_growth(name: str, scope: str, partition_count: int) -> None:
    """Refuses new partitions where they would break the topic's scope of order."""
    check_scope(name, scope, partition_count)
    if scope == "key":
        raise ProtocolError(
            ErrorCode.POLICY_VIOLATION,
            f"Topic '{name}' has ordering.scope=key: its readers rely on the order of each key's records. With more "
            "partitions keys move to other partitions, and a key's new records may be read before its old ones. To "
            "add partitions all the same, first set ordering.scope=partition on the topic.",
        )

"""Settings that an operator gave at the start, and that stored ones override."""

import pytest

from cordwood.broker.stored_settings import say_overridden
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.settings.broker_settings import BrokerSettings


def test_only_settings_with_another_stored_value_are_said(caplog: pytest.LogCaptureFixture) -> None:
    given = {"max.connections": "500", "log.retention.ms": "86400000", "num.partitions": "3", "node.id": "1"}
    image = ClusterImage(1, BrokerSettings.from_texts(given))
    say_overridden(image)
    stored = {"max.connections": "1", "log.retention.ms": " 86400000", "max.connections.per.ip": "7"}
    image.broker_configs[1] = stored
    image.settings = image.static_settings.changed_by(stored)
    say_overridden(image)
    assert caplog.messages == [
        "max.connections is 1, not 500 as this broker was started with: the value was set while a broker ran, and is "
        "stored. Delete the stored one with: cordwood config alter --broker 1 --delete max.connections"
    ]

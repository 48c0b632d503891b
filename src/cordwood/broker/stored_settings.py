"""Reports at the start the operator's settings that the cluster's metadata overrides."""

import logging

from cordwood.cluster.metadata.image import ClusterImage
from cordwood.model.settings.broker_settings import broker_setting

logger = logging.getLogger("cordwood.broker")


def say_overridden(image: ClusterImage) -> None:
    """Warns of settings of the file, the environment or the command line that stored settings override. An operator who
    restarts a broker with another value would otherwise look for the reason in vain."""
    given, effective = image.static_settings.texts, image.settings.texts
    own = image.broker_configs.get(image.node_id, {})
    for name, text in given.items():
        setting = broker_setting(name)
        assert setting is not None
        if setting.parse(text) != setting.parse(effective[name]):
            delete = (
                f"cordwood config alter --broker {image.node_id} --delete {name}"
                if name in own
                else f"kafka-configs.sh --entity-type brokers --entity-default --alter --delete-config {name}"
            )
            logger.warning(
                "%s is %s, not %s as this broker was started with: the value was set while a broker ran, and is stored."
                " Delete the stored one with: %s",
                name,
                setting.shown(effective[name]),
                setting.shown(text),
                delete,
            )

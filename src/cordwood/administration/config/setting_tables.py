"""The tables of settings, for lists, near names and documentation."""

from collections.abc import Mapping

from cordwood.model.settings.setting import Setting
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS


def topic_settings() -> Mapping[str, Setting]:
    return TOPIC_SETTINGS


def group_settings() -> Mapping[str, Setting]:
    from cordwood.model.settings.group_settings import ONE_GROUP_SETTINGS

    return ONE_GROUP_SETTINGS


def broker_settings() -> Mapping[str, Setting]:
    from cordwood.model.settings.broker_settings import BROKER_SETTINGS

    return BROKER_SETTINGS


def known_settings() -> list[str]:
    """The names of all settings."""
    return sorted({*topic_settings(), *group_settings(), *broker_settings()})

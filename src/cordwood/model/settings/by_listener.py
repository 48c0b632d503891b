"""Settings that a listener has for itself: `listener.name.NAME.SETTING`, with the listener's name in small letters."""

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from cordwood.model.settings.setting import Setting, Value

PREFIX: Final = "listener.name."


class Settings(Protocol):
    """The settings of a broker, as far as listeners need them."""

    @property
    def texts(self) -> Mapping[str, str]: ...


class AtListener(NamedTuple):
    listener: str
    """The name of the listener, in capitals."""
    setting: Setting
    """The setting that the listener has for itself."""


def listener_setting(listener: str, name: str) -> str:
    """The name of a setting of one listener."""
    return f"{PREFIX}{listener.lower()}.{name}"


def at_listener(name: str, table: Mapping[str, Setting]) -> AtListener | None:
    """The listener and the setting that such a name names; None for other names."""
    rest = name.removeprefix(PREFIX)
    if rest == name:
        return None
    # A listener's name may have dots, too: the longest name of a setting holds.
    for place, letter in enumerate(rest):
        setting = table.get(rest[place + 1 :]) if letter == "." else None
        if setting is not None and setting.by_listener and place and rest[:place] == rest[:place].lower():
            return AtListener(rest[:place].upper(), setting)
    return None


def value_at(settings: Settings, setting: Setting, listener: str) -> Value:
    """The value of a setting at a listener: its own, else that of all listeners."""
    text = settings.texts.get(listener_setting(listener, setting.name), settings.texts.get(setting.name))
    return setting.default if text is None else setting.parse(text)

"""Shows and changes the levels of this broker's loggers as configuration (resource type BROKER_LOGGER).

As in Kafka: a level holds until the broker stops, is not stored, and is named TRACE, DEBUG, INFO, WARN, ERROR or FATAL.
A logger whose level is deleted takes the level of the logger above it.
"""

from collections.abc import Sequence
from typing import Protocol

from cordwood.cluster.config_descriptions import ConfigEntry, ConfigSource
from cordwood.cluster.planner.configs import AlterOperation, ConfigChange
from cordwood.model.errors import ErrorCode, ProtocolError
from cordwood.model.settings.setting import Kind

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


class LogLevels(Protocol):
    """The loggers of the process, by name, with levels from LEVELS."""

    topmost: str
    """The logger above all others; it always has a level."""

    def levels(self) -> dict[str, str]:
        """The level that holds for each logger."""

    def set_level(self, logger: str, level: str | None) -> None:
        """Sets a logger's level; None: the logger takes the level of the logger above it."""


def describe_loggers(levels: LogLevels, node_id: int, broker: str, names: Sequence[str] | None) -> list[ConfigEntry]:
    _check_broker(node_id, broker)
    named = frozenset(names or ())
    return [
        ConfigEntry(name, level, ConfigSource.DYNAMIC_BROKER_LOGGER, False, (), Kind.STRING, "")
        for name, level in sorted(levels.levels().items())
        if not named or name in named
    ]


def alter_loggers(
    levels: LogLevels, node_id: int, broker: str, changes: Sequence[ConfigChange], *, validate_only: bool
) -> None:
    """Makes all of the changes, or raises ProtocolError and makes none."""
    _check_broker(node_id, broker)
    known = levels.levels()
    for change in changes:
        _check(change, known, levels.topmost)
    if not validate_only:
        for change in changes:
            levels.set_level(change.name, change.value if change.operation == AlterOperation.SET else None)


def _check_broker(node_id: int, broker: str) -> None:
    if broker != str(node_id):
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {node_id} but received {broker}"
        )


def _check(change: ConfigChange, known: dict[str, str], topmost: str) -> None:
    name, operation, value = change
    if operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise ProtocolError(ErrorCode.INVALID_REQUEST, "The level of a logger can be set or deleted, nothing else.")
    if name not in known:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == AlterOperation.DELETE:
        if name == topmost:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, f"Removing the log level of the {topmost} logger is not allowed"
            )
    elif value not in LEVELS:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}",
        )

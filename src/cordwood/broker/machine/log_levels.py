"""Reads and sets the levels of Python's loggers under `cordwood`, on behalf of clients.

Loggers of other packages are not shown: an embedded broker shares its process with another program.
"""

import logging

_BY_NAME = {
    "TRACE": 5,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class PythonLogLevels:
    topmost = "cordwood"

    def levels(self) -> dict[str, str]:
        logging.getLogger(self.topmost)
        return {
            name: _name_of(logger.getEffectiveLevel())
            for name, logger in list(logging.root.manager.loggerDict.items())
            if isinstance(logger, logging.Logger) and (name == self.topmost or name.startswith(f"{self.topmost}."))
        }

    def set_level(self, logger: str, level: str | None) -> None:
        logging.getLogger(logger).setLevel(logging.NOTSET if level is None else _BY_NAME[level])


def _name_of(level: int) -> str:
    """The name of this level, or of the nearest named level above it."""
    return next((name for name, number in _BY_NAME.items() if level <= number), "FATAL")

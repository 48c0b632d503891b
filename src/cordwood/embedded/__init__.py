"""A broker in this process: `from cordwood.embedded import Broker`. Imports nothing heavy before it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.embedded.broker import Broker as Broker
    from cordwood.embedded.in_process_log import InProcessLog as InProcessLog

__all__ = ["Broker", "InProcessLog"]


def __getattr__(name: str) -> Any:
    if name == "Broker":
        from cordwood.embedded.broker import Broker

        return Broker
    if name == "InProcessLog":
        from cordwood.embedded.in_process_log import InProcessLog

        return InProcessLog
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Brokers in this process: `from cordwood.embedded import Broker`. The first use of a name imports its module."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cordwood.embedded.broker import Broker as Broker
    from cordwood.embedded.cluster import Cluster as Cluster
    from cordwood.embedded.faults import Fault as Fault
    from cordwood.embedded.faults import Faults as Faults
    from cordwood.embedded.in_process_appends import RecordPlace as RecordPlace
    from cordwood.embedded.in_process_log import InProcessLog as InProcessLog
    from cordwood.embedded.in_process_log import LogRecord as LogRecord
    from cordwood.embedded.loop_calls import BrokerStopped as BrokerStopped

__all__ = ["Broker", "BrokerStopped", "Cluster", "Fault", "Faults", "InProcessLog", "LogRecord", "RecordPlace"]

_MODULES = {
    "Broker": "broker",
    "BrokerStopped": "loop_calls",
    "Cluster": "cluster",
    "Fault": "faults",
    "Faults": "faults",
    "InProcessLog": "in_process_log",
    "LogRecord": "in_process_log",
    "RecordPlace": "in_process_appends",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

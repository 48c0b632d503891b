"""Sockets, files, threads and assembly: what drives a node. `serve` runs a broker until it is told to stop."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.model.broker_settings import BrokerSettings


def serve(settings: "BrokerSettings") -> int:
    """Runs a broker in the foreground until SIGTERM, SIGINT or SIGHUP; the exit code.

    Says on standard output when clients can connect. Raises EnvironmentFailure or OSError if it cannot start.
    """
    import gc

    # Nothing that is imported or made at the start is garbage: looking for some costs 8 ms. It goes on when it serves.
    gc.disable()
    from cordwood.broker.process import run

    return run(settings)

"""Drives a node: sockets, files, threads and assembly. `serve` runs a broker until a signal stops it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory
    from cordwood.model.settings.broker_settings import BrokerSettings


def serve(settings: "BrokerSettings", *, as_json: bool = False, secure: "SecureDirectory | None" = None) -> int:
    """Runs a broker in the foreground until SIGTERM, SIGINT or SIGHUP; returns the exit code.

    Prints a line on standard output when clients can connect, `as_json` or in words. `secure` has the files for
    clients of a secure start. Raises EnvironmentFailure or
    OSError if the start fails.
    """
    import gc

    # The start leaves no garbage, and a search for it costs 8 ms. Collection is enabled when the broker serves.
    gc.disable()
    from cordwood.broker.process import run

    return run(settings, as_json=as_json, secure=secure)

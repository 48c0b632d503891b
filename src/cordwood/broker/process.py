"""A broker as a process: signals, log lines, the ready line, and the exit code."""

import asyncio
import contextlib
import logging
import os
import resource
import signal
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvloop

from cordwood.broker.machine.garbage import collect_seldom
from cordwood.broker.machine.log_lines import log_to
from cordwood.broker.server import Server
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.listeners import ListenerAddress, host_and_port

if TYPE_CHECKING:
    from cordwood.broker.secure.client_files import SecureDirectory

logger = logging.getLogger("cordwood.broker")

STOPPED: Final = 0
FAILED: Final = 1


def run(settings: BrokerSettings, *, as_json: bool = False, secure: "SecureDirectory | None" = None) -> int:
    """See `cordwood.broker.serve`."""
    log_to(settings.logging_file, settings.logging_format, settings.node_id if settings.cluster_store else None)
    _allow_many_descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, secure, as_json=as_json))


def _allow_many_descriptors() -> None:
    """Raises the soft limit of descriptors to the hard limit: connections and segment files need more than the usual
    1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _shown(addresses: Mapping[str, tuple[str, int]]) -> str:
    """Host and port; for several listeners also their names."""
    if len(addresses) == 1:
        return "".join(host_and_port(*address) for address in addresses.values())
    return ", ".join(str(ListenerAddress(name, *address)) for name, address in addresses.items())


def _ready(settings: BrokerSettings, server: Server, secure: "SecureDirectory | None", *, as_json: bool) -> str:
    """The line that says that clients can connect; `as_json` in the shape that `serve --workers --json` has, too."""
    if not as_json:
        named = "" if secure is None else secure.in_words()
        spoken = "" if secure is None else f", {settings.listener_list[0].protocol}"
        return f"cordwood ready on {_shown(server.addresses)}{spoken} (data in {settings.log_dirs}{named})"
    import json  # here, since a broker's start needs no JSON

    nodes = [{"id": settings.node_id, "pid": os.getpid()}]
    ready: dict[str, Any] = {"bootstrap_servers": host_and_port(*server.address), "nodes": nodes}
    if secure is not None:
        ready["secure"] = {"listener": settings.listener_list[0].name, **secure.present_files()}
    return json.dumps(ready)


def _say_release(node_id: int) -> None:
    """Logs the running release, after the ready line and in a thread: it imports much that a start does not need."""
    from cordwood.broker.machine.build import build

    release = build()
    logger.info("node %d runs cordwood %s, commit %s", node_id, release.version, release.commit)


def _point(secure: "SecureDirectory | None", server: Server) -> None:
    """Tells the files for clients the address: port 0 has become another by now."""
    if secure is not None:
        (endpoint,) = server.endpoints
        secure.point_at(host_and_port(endpoint.host, endpoint.port))


async def _serve(settings: BrokerSettings, secure: "SecureDirectory | None", *, as_json: bool) -> int:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # A terminal that goes away stops the broker in order, like SIGTERM. Under nohup SIGHUP stays ignored.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, told.set)
    server = await Server.start(settings, before_listening=partial(_point, secure))
    print(_ready(settings, server, secure, as_json=as_json), flush=True)
    saying = asyncio.ensure_future(asyncio.to_thread(_say_release, settings.node_id))
    garbage = collect_seldom(loop)
    stopping = asyncio.ensure_future(told.wait())
    ends: list[asyncio.Future[Any]] = [stopping, server.failed]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    garbage.close()
    if not server.failed.done():
        logger.info("stopping: answering the requests that are under way")
    await server.stop()
    await saying
    return FAILED if server.failed.done() else STOPPED

"""The measurements of `cordwood doctor`. Nothing is judged here, and only one small file is written for a moment."""

import asyncio
import ctypes
import os
import resource
import socket
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass

from cordwood.broker.machine.descriptors import PER_CONNECTION, RESERVED
from cordwood.broker.machine.sync_trust import filesystem_type
from cordwood.broker.network.listening import bind
from cordwood.broker.storage.storage import open_store, refuse_directories
from cordwood.log.inspection.lock import stopped
from cordwood.model.broker_settings import BrokerSettings
from cordwood.model.configuration import load_settings
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.model.failure import Failure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.listeners import EVERY_INTERFACE, ListenerAddress

SYNCS = 20
SYNC_BYTES = 4096
_TIME_ERROR = 5
"""The result of adjtimex while no service keeps the clock right."""


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    """The data directory, or the nearest directory above it that exists."""
    exists: bool
    in_use: bool
    """True if a broker runs on the directory."""
    refusal: str
    """The reason why the files cannot be read, or a file cannot be written and synced there; empty: they can."""
    kind: str | None
    """The type of the file system."""
    free_bytes: int
    total_bytes: int
    sync_ms: float
    """The median time of a small write and fdatasync."""
    newest_s: float
    """The newest time of change of a partition's directory, in seconds since 1970; 0 if there is none."""


@dataclass(frozen=True, slots=True)
class DirectoryFaults:
    """The objections to several data directories as those of one broker."""

    refusal: str
    """The reason why a broker would not start on them; empty: there is none."""
    twice: list[tuple[str, str]]
    """Pairs of directories with files of the same partition."""


@dataclass(frozen=True, slots=True)
class Limits:
    open_files: int | None
    """The hard limit of descriptors, to which a broker raises its own; None: no limit."""
    wanted_files: int
    wanted_connections: int


@dataclass(frozen=True, slots=True)
class Memory:
    total_bytes: int
    """The machine's memory, or the limit of the control group if that is less."""
    available_bytes: int
    wanted_bytes: int
    """The memory that the settings let a broker's buffers take, beside the process itself."""


@dataclass(frozen=True, slots=True)
class Clock:
    synchronised: bool | None
    """True if the kernel knows that a service keeps the clock right; None: it does not say."""
    now_s: float


@dataclass(frozen=True, slots=True)
class Port:
    address: str
    refusal: str
    """The reason why a broker cannot listen there; empty: it can."""
    told: str
    """The host that clients are told."""
    told_is_known: bool
    """True if that host name has an address, as seen from this machine."""
    everywhere: bool
    """True if the listener listens on all interfaces without an advertised address."""
    setting: str = "listeners"
    """The setting that names the address."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """The file of the broker's own log lines."""

    path: str
    relative: bool
    """True if the settings name it relative to the directory in which the broker is started."""
    refusal: str
    """The reason why the file cannot be written; empty: it can."""


@dataclass(frozen=True, slots=True)
class StoreMember:
    endpoint: str
    refusal: str
    """The reason why the member cannot be used; empty: it can."""
    answer_ms: float


def disk_of(directory: str) -> Disk:
    place = os.path.abspath(directory)
    exists = os.path.isdir(place)
    in_use = False
    newest_s, unreadable = 0.0, ""
    if exists:
        try:
            with stopped(place):
                pass
            newest_s = _newest_s(place)
        except Failure:
            in_use = True
        except OSError as error:
            unreadable = error.strerror or str(error)
    while not os.path.isdir(place):
        place = os.path.dirname(place)
    sync_ms, refusal = _synced(place)
    room = os.statvfs(place)
    return Disk(
        path=place,
        exists=exists,
        in_use=in_use,
        refusal=unreadable or refusal,
        kind=filesystem_type(place),
        free_bytes=room.f_bavail * room.f_frsize,
        total_bytes=room.f_blocks * room.f_frsize,
        sync_ms=sync_ms,
        newest_s=newest_s,
    )


def _synced(place: str) -> tuple[float, str]:
    times = []
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            for _ in range(SYNCS):
                started_s = time.perf_counter()
                file.write(bytes(SYNC_BYTES))
                file.flush()
                os.fdatasync(file.fileno())
                times.append((time.perf_counter() - started_s) * 1000)
    except OSError as error:
        return 0.0, error.strerror or str(error)
    return sorted(times)[SYNCS // 2], ""


def _newest_s(place: str) -> float:
    with os.scandir(place) as entries:
        return max((entry.stat().st_mtime for entry in entries if entry.is_dir()), default=0.0)


def log_file_of(settings: BrokerSettings) -> LogFile | None:
    """The log file; None if lines go to stderr. A missing file is not made."""
    if not settings.logging_file:
        return None
    path = os.path.abspath(settings.logging_file)
    refusal = ""
    try:
        if os.path.exists(path):
            with open(path, "ab"):
                pass
        else:
            with tempfile.TemporaryFile(dir=os.path.dirname(path)):
                pass
    except OSError as error:
        refusal = error.strerror or str(error)
    return LogFile(path, not os.path.isabs(settings.logging_file), refusal)


def directory_faults(settings: BrokerSettings) -> DirectoryFaults:
    try:
        refuse_directories(settings)
    except StorageFailure as failure:
        return DirectoryFaults(str(failure), [])
    logs: dict[str, str] = {}
    twice = []
    for directory in settings.data_directories:
        for name in _partitions_in(directory):
            path = os.path.join(directory, name)
            if logs.setdefault(name, path) != path:
                twice.append((logs[name], path))
    return DirectoryFaults("", twice)


def _partitions_in(directory: str) -> list[str]:
    """The names of directories with files of a partition."""
    names = []
    # `disk_of` reports a directory of another user.
    with suppress(FileNotFoundError, PermissionError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(ValueError):
                TopicPartition.parse(entry.name)
                if entry.is_dir() and os.listdir(entry.path):
                    names.append(entry.name)
    return sorted(names)


def limits_of(settings: BrokerSettings) -> Limits:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Limits(
        open_files=None if hard == resource.RLIM_INFINITY else hard,
        wanted_files=settings.open_files_max + RESERVED + PER_CONNECTION * settings.max_connections,
        wanted_connections=settings.max_connections,
    )


def memory_of(settings: BrokerSettings) -> Memory:
    figures = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, _, rest = line.partition(":")
            figures[name] = int(rest.split()[0]) * 1024
    total = figures["MemTotal"]
    for limit_file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError), open(limit_file) as file:
            total = min(total, int(file.read()))
    wanted = (
        settings.queued_max_request_bytes + settings.tail_memory_max_bytes + settings.log_cleaner_dedupe_buffer_size
    )
    return Memory(total, min(total, figures["MemAvailable"]), wanted)


def clock() -> Clock:
    synchronised: bool | None = None
    with suppress(OSError, AttributeError):
        # An empty `struct timex` asks and changes nothing; no version of it is larger than this.
        state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(512))
        synchronised = None if state < 0 else state != _TIME_ERROR
    return Clock(synchronised, time.time())


def ports_of(settings: BrokerSettings) -> list[Port]:
    ports = []
    for listener in settings.listener_list:
        refusal = _why_not_bound(listener.address)
        own_host = listener.address.host
        everywhere = listener.advertised is None and own_host in EVERY_INTERFACE
        told = listener.advertised.host if listener.advertised is not None else own_host
        told = socket.gethostname() if everywhere else told
        ports.append(Port(str(listener.address), refusal, told, _is_known(told), everywhere))
    if (metrics := settings.metrics_address) is not None:
        # The metrics address is not advertised: scrapers are configured with it.
        setting = "metrics.listener"
        ports.append(Port(settings.metrics_listener, _why_not_bound(metrics), metrics.host, True, False, setting))
    return ports


def _why_not_bound(address: ListenerAddress) -> str:
    try:
        bind(address).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


def store_members(settings: BrokerSettings) -> list[StoreMember]:
    """The members of the cluster's store, each asked alone; none for a broker without a cluster."""
    if not settings.cluster_store:
        return []
    address = settings.store_address
    stores = [f"etcd://{endpoint}" for endpoint in address.endpoints] or [settings.cluster_store]
    return asyncio.run(_ask_each(settings, stores))


async def _ask_each(settings: BrokerSettings, stores: list[str]) -> list[StoreMember]:
    return list(await asyncio.gather(*(_ask(settings, store) for store in stores)))


async def _ask(settings: BrokerSettings, store: str) -> StoreMember:
    alone = load_settings(settings={**settings.texts, "cluster.store": store})
    try:
        opened = await open_store(alone)
        try:
            started_s = time.perf_counter()
            await opened.get("controller")
            return StoreMember(store, "", (time.perf_counter() - started_s) * 1000)
        finally:
            await opened.close()
    except (EnvironmentFailure, OSError) as error:
        return StoreMember(store, str(error), 0.0)

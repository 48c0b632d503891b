"""The measurements of `cordwood doctor`: the machine as a broker meets it. Only one small file is written, briefly."""

import asyncio
import ctypes
import os
import resource
import socket
import stat
import tempfile
import time
from contextlib import suppress

from cordwood.administration.cluster.lone_replicas import LoneTopics, fewest_of_each, lone_topics
from cordwood.administration.doctor.facts import (
    Clock,
    DirectoryFaults,
    Disk,
    Limits,
    LogFile,
    Memory,
    Port,
    StoreMember,
)
from cordwood.administration.doctor.judgement import (
    Finding,
    judge_clock,
    judge_directories,
    judge_disk,
    judge_limits,
    judge_log_file,
    judge_memory,
    judge_ports,
    judge_replicas,
    judge_store,
)
from cordwood.broker.machine.descriptors import PER_CONNECTION, RESERVED
from cordwood.broker.machine.sync_trust import filesystem_type
from cordwood.broker.network.listening import bind
from cordwood.broker.storage.storage import open_store, refuse_directories
from cordwood.cluster.metadata.image import ClusterImage
from cordwood.cluster.planner.placement import places
from cordwood.log.inspection.lock import stopped
from cordwood.model.errors import EnvironmentFailure, StorageFailure
from cordwood.model.failure import Failure
from cordwood.model.identifiers import TopicPartition
from cordwood.model.settings.broker_settings import BrokerSettings
from cordwood.model.settings.configuration import load_settings
from cordwood.model.settings.listeners import EVERY_INTERFACE, ListenerAddress

SYNCS = 20
SYNC_BYTES = 4096
_TIME_ERROR = 5
"""The result of adjtimex while no service keeps the clock right."""


def findings_of(settings: BrokerSettings) -> list[Finding]:
    """The findings about this machine for a broker with these settings."""
    disks = [disk_of(path) for path in settings.data_directories]
    newest = max(disks, key=lambda disk: disk.newest_s)
    return [
        *(finding for disk in disks for finding in judge_disk(disk)),
        *judge_directories(directory_faults(settings)),
        *judge_log_file(log_file_of(settings)),
        judge_limits(limits_of(settings)),
        judge_memory(memory_of(settings)),
        *judge_clock(clock(), newest),
        *judge_ports(ports_of(settings), broker_runs=any(disk.in_use for disk in disks)),
        *judge_store(store_members(settings)),
        *judge_replicas(lone_topics_of(settings)),
    ]


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
    mode = stat.S_IMODE(os.stat(place).st_mode) if exists else 0o700
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
        mode=mode,
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


def lone_topics_of(settings: BrokerSettings) -> LoneTopics | None:
    """The topics of the broker's cluster that have one replica, as its metadata store tells; None also if no member of
    the store answers."""
    return asyncio.run(_lone_topics(settings)) if settings.cluster_store else None


async def _lone_topics(settings: BrokerSettings) -> LoneTopics | None:
    try:
        store = await open_store(settings)
    except (EnvironmentFailure, OSError):
        return None
    image = ClusterImage(settings.node_id, settings)
    try:
        image.load(await store.list(""))
    except (EnvironmentFailure, OSError):
        return None
    finally:
        await store.close()
    counts = ((name, len(each.replicas)) for name, topic in image.topics.items() for each in topic.partitions)
    return lone_topics(fewest_of_each(counts), places(image), settings.replication_factor_max)

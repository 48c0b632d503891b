"""Judges the facts of a machine for a broker: pure functions, so that tests can judge machines that are not at hand."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cordwood.administration.cluster.lone_replicas import LoneTopics
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
from cordwood.model.quantities import size_in_words

PROCESS_BYTES = 150 << 20
"""The memory of a broker beside its buffers, with room for some thousand partitions."""
SLOW_SYNC_MS = 20.0
SLOW_STORE_MS = 100.0
LITTLE_ROOM = 0.15
NO_ROOM = 0.05
FORGETFUL = frozenset({"tmpfs", "ramfs", "overlay"})
OF_THE_NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs"})


class State(StrEnum):
    FINE = "fine"
    WARNING = "warning"
    """Will hurt later, or under load."""
    PROBLEM = "problem"
    """A broker does not start, or acknowledged records are not safe."""


@dataclass(frozen=True, slots=True)
class Finding:
    area: str
    state: State
    words: str
    remedy: str = ""


def judge_disk(disk: Disk) -> Iterator[Finding]:
    if disk.refusal:
        yield Finding(
            "disk",
            State.PROBLEM,
            f"{disk.path} cannot be read and written by this user: {disk.refusal}",
            "give the broker's user the directory, or name another with --data-dir; run the doctor as that user",
        )
        return
    if disk.kind in FORGETFUL:
        yield Finding(
            "disk",
            State.PROBLEM,
            f"{disk.path} is on {disk.kind}: its files vanish with the machine or the container",
            "mount a disk there",
        )
    elif disk.kind in OF_THE_NETWORK:
        yield Finding(
            "disk",
            State.WARNING,
            f"{disk.path} is on {disk.kind}: locks and fsync over a network are not always what they promise",
            "use a local disk, and replicas for its loss",
        )
    if disk.mode & 0o077:
        yield Finding(
            "disk",
            State.WARNING,
            f"other users of this machine may look into {disk.path} (mode {disk.mode:o}), which has the records of all "
            "topics: it was made by a build that did not keep it to the broker's user",
            f"chmod -R go-rwx {disk.path}",
        )
    share = disk.free_bytes / disk.total_bytes if disk.total_bytes else 0.0
    words = (
        f"{size_in_words(disk.free_bytes)} of {size_in_words(disk.total_bytes)} are free ({share:.0%}) at {disk.path}"
    )
    if share < LITTLE_ROOM:
        state = State.PROBLEM if share < NO_ROOM else State.WARNING
        yield Finding(
            "disk", state, words, "free space, or lower log.retention.bytes: a full disk stops all appends to it"
        )
    else:
        yield Finding("disk", State.FINE, words)
    sync = f"an fdatasync of 4 KiB takes {disk.sync_ms:.1f} ms at {disk.path}"
    if disk.sync_ms > SLOW_SYNC_MS:
        yield Finding(
            "disk",
            State.WARNING,
            f"{sync}: every acknowledgement under ack.durability=disk waits for one",
            "use a faster disk; with replicas, ack.durability=os waits for none",
        )
    else:
        yield Finding("disk", State.FINE, sync)


def judge_directories(found: DirectoryFaults) -> Iterator[Finding]:
    if found.refusal:
        yield Finding("data directories", State.PROBLEM, f"a broker does not start: {found.refusal}")
    for first, second in found.twice:
        yield Finding(
            "data directories",
            State.WARNING,
            f"{first} and {second} both have files of one partition: a broker that knows the partition does not start",
            "`cordwood inspect` shows the offsets in each; move the wrong one away, out of the data directory",
        )


def judge_log_file(file: LogFile | None) -> Iterator[Finding]:
    if file is None:
        return
    if file.refusal:
        yield Finding(
            "log file",
            State.PROBLEM,
            f"{file.path} cannot be written: {file.refusal}",
            "give the broker's user its directory, or another file with --set logging.file=FILE",
        )
    elif file.relative:
        yield Finding(
            "log file",
            State.WARNING,
            f"{file.path} can be written; another directory at the start means another file, since logging.file is "
            "relative",
            "give the whole path: systemd starts a broker in / unless its unit has a WorkingDirectory",
        )
    else:
        yield Finding("log file", State.FINE, f"{file.path} can be written")


def judge_limits(limits: Limits) -> Finding:
    allowed = limits.open_files
    if allowed is None or allowed >= limits.wanted_files:
        return Finding("open files", State.FINE, "no limit" if allowed is None else f"up to {allowed:,}")
    return Finding(
        "open files",
        State.WARNING,
        f"at most {allowed:,}, and open.files.max and max.connections ask for {limits.wanted_files:,}: some of the "
        f"{limits.wanted_connections:,} connections would be refused",
        f"ulimit -Hn {limits.wanted_files} (systemd: LimitNOFILE)",
    )


def judge_memory(memory: Memory) -> Finding:
    wanted = memory.wanted_bytes + PROCESS_BYTES
    words = (
        f"{size_in_words(memory.available_bytes)} of {size_in_words(memory.total_bytes)} are available; a broker under "
        f"full load takes up to {size_in_words(wanted)}, and what is left caches records"
    )
    if wanted > memory.total_bytes:
        return Finding(
            "memory",
            State.PROBLEM,
            words,
            "lower queued.max.request.bytes and tail.memory.max.bytes, or give it more memory",
        )
    if wanted > memory.available_bytes:
        return Finding("memory", State.WARNING, words, "other programs have the memory: move them, or the broker")
    return Finding("memory", State.FINE, words)


def judge_clock(clock: Clock, disk: Disk) -> Iterator[Finding]:
    ahead_s = disk.newest_s - clock.now_s
    if ahead_s > 60:
        yield Finding(
            "clock",
            State.PROBLEM,
            f"partitions were changed {ahead_s:,.0f} s in the future: the clock was set back",
            "set the clock right before a start: records get their times, and retention its age, from it",
        )
    if clock.synchronised is False:
        yield Finding(
            "clock",
            State.WARNING,
            "no service keeps the clock right",
            "run chrony or systemd-timesyncd: times of records and retention follow the clock",
        )
    elif clock.synchronised is None:
        yield Finding("clock", State.FINE, "the kernel does not say whether a service keeps the clock right")
    elif ahead_s <= 60:
        yield Finding("clock", State.FINE, "a service keeps it right")


def judge_ports(ports: Sequence[Port], *, broker_runs: bool) -> Iterator[Finding]:
    for port in ports:
        if port.refusal and not broker_runs:
            yield Finding(
                "ports",
                State.PROBLEM,
                port.refusal,
                "stop who has it (`ss -ltnp`), or give another address with "
                + ("--listen" if port.setting == "listeners" else f"--set {port.setting}=HOST:PORT"),
            )
        else:
            named = "" if port.setting == "listeners" else f" ({port.setting})"
            used = "in use by the broker" if port.refusal else "free"
            yield Finding("ports", State.FINE, f"{port.address}{named} is {used}")
        if not port.told_is_known:
            yield Finding(
                "ports",
                State.PROBLEM,
                f"clients are told to connect to {port.told}, a name that has no address on this machine",
                "set advertised.listeners to a name or an address that clients reach",
            )
        elif port.everywhere:
            yield Finding(
                "ports",
                State.WARNING,
                f"{port.address} listens on all interfaces, and clients are told {port.told}",
                "set advertised.listeners: other machines may not know this name",
            )


def judge_store(members: Sequence[StoreMember]) -> Iterator[Finding]:
    usable = [member for member in members if not member.refusal]
    for member in members:
        if member.refusal:
            most = 2 * len(usable) > len(members)
            yield Finding(
                "metadata store",
                State.WARNING if most else State.PROBLEM,
                f"{member.endpoint}: {member.refusal}",
                "start or mend this member"
                + ("; the others are enough until one more fails" if most else ": most members have to work"),
            )
        elif member.answer_ms > SLOW_STORE_MS:
            yield Finding(
                "metadata store",
                State.WARNING,
                f"{member.endpoint} answers in {member.answer_ms:.0f} ms",
                "give etcd a fast disk of its own: slow renewals of leases make brokers change leaders",
            )
        else:
            yield Finding("metadata store", State.FINE, f"{member.endpoint} answers in {member.answer_ms:.0f} ms")
    if len(members) in (1, 2) and members[0].endpoint.startswith("etcd://"):
        yield Finding(
            "metadata store",
            State.WARNING,
            f"cluster.store names {len(members)} member{'s' * (len(members) > 1)} of etcd",
            "three members outlive the loss of one; name all of them",
        )


def judge_replicas(lone: LoneTopics | None) -> Iterator[Finding]:
    if lone is not None:
        yield Finding("replicas", State.WARNING, lone.in_words(), f"`{lone.command}` adds replicas")

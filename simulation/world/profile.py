"""The profile of one run. Every seed leaves most faults and clients out, so that the others meet often and in odd
combinations."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Fault(Enum):
    KILL = "kill -9"
    POWER_CUT = "power cut"
    CLEAN_STOP = "clean stop"
    DISK_FULL = "the disk is full"
    DISK_FREE = "the disk has space"
    SYNC_FAILS = "syncs fail"
    UNREADABLE = "the disk cannot be read, or can again"
    COLD = "nothing is cached, or everything is again"
    HANDLES = "file handles are given up"
    CLOCK = "the wall clock is set"
    STORE = "the metadata store fails"


_RARE = (Fault.SYNC_FAILS, Fault.UNREADABLE)


@dataclass(frozen=True)
class Profile:
    faults: tuple[Fault, ...]
    fault_rate: float
    eagerness: float
    """The share of steps that continue pending work; the rest are new requests."""
    settings: Mapping[str, str]
    loaded_indexes_bytes: int
    idempotent_producers: int
    plain_producers: int
    deletes_topics: bool
    retention: bool
    compaction: bool
    vandals: bool
    durability: tuple[str, ...]
    threads: bool
    """True if work in threads is interrupted by other steps; otherwise it is done at once."""

    @classmethod
    def chosen_by(cls, chance: random.Random) -> "Profile":
        faults = [fault for fault in Fault if fault not in _RARE and chance.random() < 0.5]
        faults += [fault for fault in _RARE if chance.random() < 0.15]
        if Fault.DISK_FULL in faults and Fault.DISK_FREE not in faults:
            faults.append(Fault.DISK_FREE)
        if not faults:
            faults.append(Fault.HANDLES)
        return cls(
            faults=tuple(faults),
            fault_rate=chance.choice((0.005, 0.02, 0.05)),
            eagerness=chance.choice((0.6, 0.75, 0.9)),
            settings={
                "log.retention.check.interval.ms": chance.choice(("500", "5000")),
                "log.flush.offset.checkpoint.interval.ms": chance.choice(("300", "3000", "60000")),
                "log.cleaner.backoff.ms": chance.choice(("400", "15000")),
                "auto.create.topics.enable": "false",
                "open.files.max": chance.choice(("16", "2048")),
            },
            loaded_indexes_bytes=chance.choice((1, 1 << 20)),
            idempotent_producers=chance.randint(1, 3),
            plain_producers=chance.randint(0, 2),
            deletes_topics=chance.random() < 0.4,
            retention=chance.random() < 0.3,
            compaction=chance.random() < 0.3,
            vandals=chance.random() < 0.3,
            durability=chance.choice((("disk",), ("disk",), ("os",), ("disk", "os"))),
            threads=chance.random() < 0.4,
        )

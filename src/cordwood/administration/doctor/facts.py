"""The facts about a machine that decide whether a broker can run on it, as values."""

from dataclasses import dataclass


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
    mode: int = 0o700
    """The rights on the data directory; those of a directory that does not exist are its owner's."""


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

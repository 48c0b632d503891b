"""The way of a store to etcd: members, the cluster's prefix, deadlines, and the store's credentials."""

import re
from dataclasses import dataclass, field

from cordwood.cluster.stores.interface import StoreFailure

PREFIX = "/cordwood/"
_CLUSTER = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class EtcdOptions:
    """`endpoints`: members as host:port, in any order; `cluster`: the name under which this cluster's keys are kept."""

    endpoints: tuple[str, ...]
    cluster: str
    deadline_ms: int = 5_000
    """The longest time of a call, including the search for a member that serves."""
    attempt_ms: int = 1_500
    """The longest time that one member gets to answer."""
    allow_old: bool = False
    """For tests only: takes versions of etcd with known faults."""
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    """The first line of this file is the password, if given. It is read at each login."""
    ca_file: str = ""
    """The certificates that sign the members' certificates. Given, or with a certificate, connections are TLS."""
    certificate_file: str = ""
    key_file: str = ""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise StoreFailure("no member of etcd is named")
        if _CLUSTER.fullmatch(self.cluster) is None:
            raise StoreFailure(f"{self.cluster!r} is no name for a cluster: letters, digits, '.', '_' and '-' are")

    def read_password(self) -> str:
        """The password. Raises StoreFailure."""
        if not self.password_file:
            return self.password
        try:
            with open(self.password_file, encoding="utf-8") as file:
                return file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise StoreFailure(f"the file of the password for etcd cannot be read: {error}") from error

    @property
    def prefix(self) -> str:
        return f"{PREFIX}{self.cluster}/"

    @property
    def tls(self) -> bool:
        return bool(self.ca_file or self.certificate_file)

"""The settings of this broker's place in the cluster, of the topics that the cluster creates, and of the
address of the metadata store."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from cordwood.model.settings.setting import InvalidSetting, Value, boolean, int16, int32, string

DEFAULT_REPLICATION_FACTOR: Final = "default.replication.factor"


_EXAMPLES = "etcd://host:2379,host:2379 or unix:///path/to/metadata.sock"


class StoreAddress(NamedTuple):
    """The members of an etcd, or the path of a socket."""

    endpoints: tuple[str, ...] = ()
    socket_path: str = ""


def parse_store_address(text: str) -> StoreAddress:
    """Parses the address. Raises InvalidSetting."""
    kind, _, place = text.partition("://")
    if kind == "unix" and place.startswith("/"):
        return StoreAddress(socket_path=place)
    endpoints = tuple(part.strip() for part in place.split(",") if part.strip())
    if kind == "etcd" and endpoints and all(_is_endpoint(endpoint) for endpoint in endpoints):
        return StoreAddress(endpoints)
    raise InvalidSetting(f"Invalid value {text} for configuration cluster.store: expected {_EXAMPLES}")


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 65536


def _check_store(value: Value) -> str | None:
    if value == "":
        return None
    try:
        parse_store_address(str(value))
    except InvalidSetting:
        return f"expected {_EXAMPLES}"
    return None


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ClusterSettings:
    """The broker's identity, and how topics are created and deleted."""

    auto_create_topics_enable: bool = boolean(
        True, "Whether a topic is created when a producer or consumer first asks for it."
    )
    auto_leader_rebalance_enable: bool = boolean(
        True,
        "Whether partitions are led by the first of their replicas again once it is back in sync.",
    )
    broker_lease_ms: int = int32(
        3_000,
        "How long the registration of a broker in a cluster outlives the broker: after this time others take over.",
        low=2_000,
    )
    broker_rack: str = string("", "The rack or zone that this broker is in.")
    cluster_etcd_allow_old: bool = boolean(
        False,
        "For tests only: takes members of etcd below 3.5.28 and 3.6.9, which have known faults that lose or invent "
        "metadata.",
    )
    cluster_etcd_ca_file: str = string(
        "",
        "The file of the certificates that sign those of etcd's members. Given, connections to etcd are TLS.",
    )
    cluster_etcd_certificate_file: str = string(
        "", "The file of this broker's certificate for etcd, where etcd asks for one. Given, connections are TLS."
    )
    cluster_etcd_key_file: str = string("", "The file of the private key of `cluster.etcd.certificate.file`.")
    cluster_etcd_password_file: str = string(
        "",
        "The file whose first line is the password of `cluster.etcd.user`; it is read again at each login. Empty: the "
        "password is in the environment, as CORDWOOD_ETCD_PASSWORD.",
    )
    cluster_etcd_user: str = string("", "The user of this broker in etcd. Empty: etcd does not ask for users.")
    cluster_name: str = string("", "The name of the cluster in its metadata store. Needed with `cluster.store`.")
    cluster_store: str = string(
        "",
        "The metadata store that all brokers of the cluster share: `etcd://host:port,host:port`, or "
        "`unix:///path/to.sock` of a supervisor on this machine. Empty: the broker is a cluster of one, with a store "
        "of its own.",
        check=_check_store,
    )
    default_replication_factor: int = int16(
        0,
        "Replicas of each partition of a topic that is created without saying how many. 0: three, or one for each "
        "member of the cluster if there are fewer; members that are cordoned do not count.",
        low=0,
    )
    delete_topic_enable: bool = boolean(True, "Whether topics can be deleted.")
    metadata_version_max: int = int16(
        0,
        "The newest metadata version that this broker writes and reads. A new cluster begins with it: with a lower one "
        "brokers of an older release can join. 0: the newest of this release.",
        low=0,
    )
    node_id: int = int32(1, "This broker's number: unique in the cluster and the same for ever.", low=0)
    num_partitions: int = int32(1, "Partitions of a topic that is created without saying how many.", low=1)
    partitions_max: int = int32(
        50_000,
        "Partitions that this cluster holds at most, over all topics: a topic that would exceed the limit is refused.",
        low=1,
    )
    replication_factor_max: int = int16(
        32_767,
        "Replicas of each partition at most: a topic that asks for more is refused. `cordwood serve --workers` sets 1.",
        low=1,
    )

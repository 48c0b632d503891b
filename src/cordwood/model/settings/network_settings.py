"""The settings of connections: addresses, and how much a client may ask for at once; and of an operator's view: lag,
metrics, health and the lines of the broker's own log."""

from dataclasses import dataclass

from cordwood.model.settings.listeners import (
    SECURITY_PROTOCOLS,
    check_advertised,
    check_listeners,
    check_metrics_address,
    check_protocols,
)
from cordwood.model.settings.setting import boolean, int32, int64, string, string_list


@dataclass(frozen=True, init=False, repr=False, eq=False)
class NetworkSettings:
    """Addresses, and bounds on connections, requests and responses."""

    advertised_listeners: tuple[str, ...] = string_list(
        (),
        "The addresses that clients are told to connect to, by the listeners' names. A listener that is not named here "
        "is told by its own address, one at 0.0.0.0 by the host name of the machine.",
        check=check_advertised,
    )
    connections_max_idle_ms: int = int64(
        600_000, "A connection on which nothing happened for this long is closed.", low=1
    )
    fetch_max_bytes: int = int32(
        57_671_680, "The most that one fetch response carries, whatever the consumer asks for.", low=1024
    )
    inter_broker_listener_name: str = string(
        "",
        "The listener that brokers use among themselves: the only one that takes requests that only brokers may send. "
        "Not set: the only listener; of several the one with the name PLAINTEXT.",
    )
    listener_security_protocol_map: tuple[str, ...] = string_list(
        tuple(f"{name}:{name}" for name in SECURITY_PROTOCOLS),
        "The security protocol of each listener: PLAINTEXT; SSL, which is TLS; SASL_PLAINTEXT and SASL_SSL, which ask "
        "clients for user and password.",
        check=check_protocols,
    )
    listeners: tuple[str, ...] = string_list(
        ("PLAINTEXT://127.0.0.1:9092",),
        "The addresses to listen on, each as NAME://host:port; just host:port has the name PLAINTEXT. Port 0 picks a "
        "free port; an empty host or 0.0.0.0 listens on all interfaces. A client is told the addresses of the listener "
        "that it came in on.",
        check=check_listeners,
    )
    max_connection_creation_rate: int = int32(
        2**31 - 1,
        "New connections in a second, on all listeners but that of brokers. Those beyond it wait for their turn before "
        "the broker reads from them, 10 s at most; what would wait longer is closed at once.",
        low=1,
    )
    max_connections: int = int32(
        10_000,
        "Connections beyond this many are closed at once. Fewer if the process may not open enough files: "
        "see `ulimit -n`; one may need two descriptors, beside those of `open.files.max` and 64 more. At the listener "
        "of brokers a connection always gets in: the client's connection that was idle for the longest time makes way. "
        "For a client the oldest one makes way that has not finished its TLS handshake or log-in after a second. "
        "A change while the broker runs holds for new connections; those that are open stay.",
        low=1,
    )
    max_connections_per_ip: int = int32(
        2**31 - 1,
        "Connections from one address beyond this many are closed at once. Those at the listener of brokers do not "
        "count. A change while the broker runs holds for new connections; those that are open stay. In a TOML file "
        "that also sets `max.connections` the name needs quotes.",
        low=1,
    )
    max_incremental_fetch_session_cache_slots: int = int32(
        1000, "Incremental fetch sessions that the broker remembers.", low=0
    )
    max_request_partition_size_limit: int = int32(
        2000, "The most partitions in one DescribeTopicPartitions response.", low=1
    )
    queued_max_request_bytes: int = int64(
        268_435_456,
        "Memory for requests that have arrived and are not yet answered, over all connections, and as much again for "
        "requests that are arriving. Beyond it connections are not read until there is room; while they wait, those "
        "whose requests arrive too slowly are closed.",
        low=1,
    )
    queued_max_response_bytes: int = int64(
        268_435_456,
        "Memory for answers that are made and that their clients have not taken yet, over all connections; records in "
        "their files do not count. Beyond it connections whose clients have taken nothing for the longest time are "
        "closed. One answer has at most 100 MiB.",
        low=1,
    )
    socket_request_max_bytes: int = int32(
        104_857_600, "The largest request; a connection that announces a larger one is closed.", low=1024
    )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class ObservationSettings:
    """Lag, metrics, health, log lines."""

    lag_check_interval_ms: int = int64(
        5000,
        "How often the positions of groups are compared with their logs: for metrics, and to warn before a loss.",
        low=100,
    )
    lag_warning_ms: int = int64(
        3_600_000,
        "A group that will lose records to retention within this time, at the current rates, is named in "
        "the broker's log; within half of the topic's retention.ms if that is less. 0 warns of nothing but "
        "losses.",
        low=0,
    )
    logging_file: str = string(
        "",
        "The file to which the broker appends its log lines, instead of stderr. A file that was renamed or deleted is "
        "made anew at the next line, so that `logrotate` needs neither a signal nor `copytruncate`. For `cordwood "
        "serve`; an embedded broker logs as its program says.",
    )
    logging_format: str = string(
        "text",
        "How log lines look. `json`: one object per line, with time, level, logger, message and, for failures, the "
        "traceback. For `cordwood serve`.",
        choices=("text", "json"),
    )
    metrics_hot_keys: bool = boolean(
        False,
        "Whether metrics name the most frequent keys of partitions that get far more than their share of "
        "traffic. Off by default: keys are data, and the metrics' address has no passwords.",
    )
    metrics_listener: str = string(
        "",
        "The address at which metrics and health are to be had over HTTP: host:port, such as 127.0.0.1:9404, or "
        "https://host:port with the certificate of `listener.name.https.ssl.keystore.location`, else that of all. "
        "`/metrics` is for Prometheus; `/live` answers 200 while the broker runs; `/ready` answers 200 while it takes "
        "clients, else 503 and the reason. Empty: nowhere.",
        check=check_metrics_address,
    )

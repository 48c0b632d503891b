"""The settings of a broker: Kafka's names for what Kafka has, and a few of our own.

The broker's settings include the default of every topic setting, under its broker-wide name: `retention.ms` of a topic
that does not set it is the broker's `log.retention.ms`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from cordwood.model.settings import InvalidSetting, Kind, Setting, Value, attribute_values, table
from cordwood.model.topic_settings import TOPIC_SETTINGS, TopicSettings, resolve


class Listener(NamedTuple):
    """An address that clients connect to, as `listeners` and `advertised.listeners` write it."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listener(text: str) -> Listener:
    """`PLAINTEXT://host:port`, or just `host:port`. ValueError with the reason for anything else."""
    name, separator, address = text.strip().rpartition("://")
    if not separator:
        name = "PLAINTEXT"
    if name != "PLAINTEXT":
        raise ValueError(f"the listener {name} is not supported, only PLAINTEXT is")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ValueError("it must end in a port: PLAINTEXT://host:port")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError("an IPv6 address needs brackets: PLAINTEXT://[::1]:9092")
    return Listener(name, host, int(port))


def _one_listener(value: Value) -> str | None:
    assert isinstance(value, tuple)
    if len(value) != 1:
        return "must name one listener"
    try:
        parse_listener(value[0])
    except ValueError as error:
        return str(error)
    return None


def _advertised_listener(value: Value) -> str | None:
    if value == ():
        return None
    if (reason := _one_listener(value)) is not None:
        return reason
    assert isinstance(value, tuple)
    advertised = parse_listener(value[0])
    if advertised.host in ("", "0.0.0.0", "::"):
        return "clients cannot connect to a wildcard address: name a host that they can reach"
    return None


def _metrics_listener(value: Value) -> str | None:
    if value == "":
        return None
    assert isinstance(value, str)
    try:
        parse_listener(value)
    except ValueError as error:
        return str(error)
    return None


def _directory(value: Value) -> str | None:
    return None if value else "must name a directory"


_OWN_SETTINGS = [
    Setting(
        "advertised.listeners",
        Kind.LIST,
        (),
        "The address that clients are told to connect to, if it is not that of `listeners`.",
        check=_advertised_listener,
        changeable=False,
    ),
    Setting(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        True,
        "Whether a topic is created when a producer or consumer first asks for it.",
        changeable=False,
    ),
    Setting("broker.rack", Kind.STRING, "", "The rack or zone that this broker is in.", changeable=False),
    Setting(
        "cold.read.threads",
        Kind.INT,
        4,
        "Threads that read what is not in the page cache, so that a back-filling reader stalls nobody.",
        low=1,
        high=256,
        changeable=False,
    ),
    Setting(
        "connections.max.idle.ms",
        Kind.LONG,
        600_000,
        "A connection on which nothing happened for this long is closed.",
        low=1,
        changeable=False,
    ),
    Setting(
        "default.replication.factor",
        Kind.SHORT,
        1,
        "Replicas of each partition of a topic that is created without saying how many.",
        low=1,
        changeable=False,
    ),
    Setting("delete.topic.enable", Kind.BOOLEAN, True, "Whether topics can be deleted.", changeable=False),
    Setting(
        "fetch.max.bytes",
        Kind.INT,
        57_671_680,
        "The most that one fetch response carries, whatever the consumer asks for.",
        low=1024,
        changeable=False,
    ),
    Setting(
        "flush.threads",
        Kind.INT,
        8,
        "Threads that fsync dirty partitions, at the same time.",
        low=1,
        high=256,
        changeable=False,
    ),
    Setting(
        "group.consumer.heartbeat.interval.ms",
        Kind.INT,
        1000,
        "How often members of the consumer protocol are told to send a heartbeat. Kafka's is 5000: a shorter one makes "
        "rebalances quicker, because members learn of their next step from the answer.",
        low=1,
        changeable=False,
    ),
    Setting(
        "group.consumer.max.size",
        Kind.INT,
        1000,
        "Members of one group of the consumer protocol at most. Kafka has no limit of its own.",
        low=1,
        changeable=False,
    ),
    Setting(
        "group.consumer.session.timeout.ms",
        Kind.INT,
        45_000,
        "A member of the consumer protocol that is not heard of for this long is taken out of its group.",
        low=1,
        changeable=False,
    ),
    Setting(
        "group.heartbeat.hold.ms",
        Kind.INT,
        2900,
        "How long the answer to a heartbeat of the classic protocol may be held back, at most a quarter of the session "
        "timeout, so that the member hears of a rebalance at once. A little less than the clients' "
        "heartbeat.interval.ms: librdkafka leaves out a heartbeat that is due before the last one was answered. Only "
        "for clients that do not wait for it (Java, librdkafka). 0: every heartbeat is answered at once, as Kafka "
        "does.",
        low=0,
        high=30_000,
        changeable=False,
    ),
    Setting(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        100,
        "How long the first round of a group waits for more members, and again that long while more come. Kafka waits "
        "3000: longer saves rebalances when many members start slowly, shorter lets the first one read sooner.",
        low=0,
        changeable=False,
    ),
    Setting(
        "group.max.session.timeout.ms",
        Kind.INT,
        1_800_000,
        "The longest session timeout that a member of a group may ask for.",
        low=1,
        changeable=False,
    ),
    Setting(
        "group.max.size",
        Kind.INT,
        1000,
        "Members of one group at most. Kafka has no limit of its own.",
        low=1,
        changeable=False,
    ),
    Setting(
        "group.min.session.timeout.ms",
        Kind.INT,
        6000,
        "The shortest session timeout that a member of a group may ask for.",
        low=1,
        changeable=False,
    ),
    Setting(
        "groups.max",
        Kind.INT,
        100_000,
        "Groups that this broker coordinates at most: a new one beyond that is refused.",
        low=1,
        changeable=False,
    ),
    Setting(
        "lag.check.interval.ms",
        Kind.LONG,
        5000,
        "How often the positions of groups are compared with their logs: for metrics, and to warn before a loss.",
        low=100,
        changeable=False,
    ),
    Setting(
        "lag.warning.ms",
        Kind.LONG,
        3_600_000,
        "A group that will lose records to retention within this time, at the current rates, is named in the broker's "
        "log; within half of the topic's retention.ms if that is less. 0 warns of nothing but losses.",
        low=0,
        changeable=False,
    ),
    Setting(
        "listeners",
        Kind.LIST,
        ("PLAINTEXT://127.0.0.1:9092",),
        "The address to listen on. Port 0 picks a free port; an empty host or 0.0.0.0 listens on all interfaces.",
        check=_one_listener,
        changeable=False,
    ),
    Setting(
        "log.cleaner.backoff.ms",
        Kind.LONG,
        15_000,
        "How long compaction waits when it found nothing to do.",
        low=1,
        changeable=False,
    ),
    Setting(
        "log.cleaner.dedupe.buffer.size",
        Kind.LONG,
        134_217_728,
        "The memory that compaction may use to remember the latest offset of each key.",
        low=1_048_576,
        changeable=False,
    ),
    Setting("log.cleaner.enable", Kind.BOOLEAN, True, "Whether compacted topics are compacted.", changeable=False),
    Setting(
        "log.dirs",
        Kind.STRING,
        "./cordwood-data",
        "The directory that holds the data. One, in spite of its name: to use more disks run more brokers.",
        check=_directory,
        changeable=False,
    ),
    Setting(
        "log.flush.offset.checkpoint.interval.ms",
        Kind.INT,
        60_000,
        "How often recovery points are written: after a crash only what came after them is checked.",
        low=1,
        changeable=False,
    ),
    Setting(
        "log.retention.check.interval.ms",
        Kind.LONG,
        300_000,
        "How often segments are looked at for retention.",
        low=1,
        changeable=False,
    ),
    Setting(
        "max.connections",
        Kind.INT,
        10_000,
        "Connections beyond this many are closed at once. Fewer if the process may not open enough files: see "
        "`ulimit -n`; one may need two descriptors, beside those of `open.files.max` and 64 more.",
        low=1,
        changeable=False,
    ),
    Setting(
        "max.incremental.fetch.session.cache.slots",
        Kind.INT,
        1000,
        "Incremental fetch sessions that the broker remembers.",
        low=0,
        changeable=False,
    ),
    Setting(
        "max.request.partition.size.limit",
        Kind.INT,
        2000,
        "The most partitions in one DescribeTopicPartitions response.",
        low=1,
        changeable=False,
    ),
    Setting(
        "node.id",
        Kind.INT,
        1,
        "This broker's number: unique in the cluster and the same for ever.",
        low=0,
        changeable=False,
    ),
    Setting(
        "metrics.hot.keys",
        Kind.BOOLEAN,
        False,
        "Whether metrics name the most frequent keys of partitions that get far more than their share of traffic. Off "
        "by default: keys are data, and the metrics' address has no passwords.",
        changeable=False,
    ),
    Setting(
        "metrics.listener",
        Kind.STRING,
        "",
        "The address at which metrics are to be had over HTTP, for Prometheus: host:port, such as 127.0.0.1:9404. "
        "Empty: nowhere.",
        check=_metrics_listener,
        changeable=False,
    ),
    Setting(
        "num.partitions",
        Kind.INT,
        1,
        "Partitions of a topic that is created without saying how many.",
        low=1,
        changeable=False,
    ),
    Setting(
        "offset.metadata.max.bytes",
        Kind.INT,
        4096,
        "The longest text that a consumer may store beside a committed offset, in characters, as Kafka counts. Older "
        "versions of OffsetFetch have two bytes for its length.",
        low=0,
        high=32_767,
        changeable=False,
    ),
    Setting(
        "offsets.retention.check.interval.ms",
        Kind.LONG,
        600_000,
        "How often committed offsets are looked at for expiry.",
        low=1,
        changeable=False,
    ),
    Setting(
        "offsets.retention.minutes",
        Kind.INT,
        10_080,
        "How long committed offsets are kept after their group was last heard of.",
        low=1,
        changeable=False,
    ),
    Setting(
        "offsets.topic.num.partitions",
        Kind.INT,
        50,
        "Partitions of the internal topic of committed offsets. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "offsets.topic.replication.factor",
        Kind.SHORT,
        1,
        "Replicas of the internal topic of committed offsets. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "offsets.topic.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of the internal topic of committed offsets. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "open.files.max",
        Kind.INT,
        2048,
        "Files of the log that are open at one time; the least recently used are closed and opened again when needed. "
        "More than there are partitions written to within a flush keeps flushes short. At most half of what the "
        "process may open (`ulimit -n`).",
        low=16,
        changeable=False,
    ),
    Setting(
        "partitions.max",
        Kind.INT,
        50_000,
        "Partitions that this cluster holds at most, over all topics: what would go beyond is refused.",
        low=1,
        changeable=False,
    ),
    Setting(
        "producer.id.expiration.ms",
        Kind.INT,
        86_400_000,
        "How long a partition remembers an idle idempotent producer, to recognise its duplicates.",
        low=1,
        changeable=False,
    ),
    Setting(
        "queued.max.request.bytes",
        Kind.LONG,
        268_435_456,
        "Memory for requests that have arrived and are not yet answered, over all connections. Beyond it connections "
        "are not read until there is room.",
        low=1,
        changeable=False,
    ),
    Setting(
        "socket.request.max.bytes",
        Kind.INT,
        104_857_600,
        "The largest request; a connection that announces a larger one is closed.",
        low=1024,
        changeable=False,
    ),
    Setting(
        "tail.memory.max.bytes",
        Kind.LONG,
        67_108_864,
        "Memory for the newest batches of all partitions, which answers readers where the file system cannot say "
        "whether a read would wait for the disk.",
        low=0,
        changeable=False,
    ),
    Setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        Kind.INT,
        10_000,
        "How often open transactions are looked at for their timeout.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.max.timeout.ms",
        Kind.INT,
        900_000,
        "The longest transaction timeout that a producer may ask for.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        Kind.INT,
        3_600_000,
        "How often transactional ids are looked at for expiry.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.state.log.min.isr",
        Kind.INT,
        1,
        "The `min.insync.replicas` of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.state.log.num.partitions",
        Kind.INT,
        50,
        "Partitions of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        1,
        "Replicas of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transaction.state.log.segment.bytes",
        Kind.INT,
        104_857_600,
        "Segment size of the internal topic of transactions. Takes effect when that topic is created.",
        low=1,
        changeable=False,
    ),
    Setting(
        "transactional.id.expiration.ms",
        Kind.INT,
        604_800_000,
        "How long a transactional id that no producer uses is remembered.",
        low=1,
        changeable=False,
    ),
]


class CoarserUnit(NamedTuple):
    """A setting that Kafka also takes in a coarser unit."""

    name: str
    factor: int


COARSER_UNITS = {
    "log.retention.minutes": CoarserUnit("log.retention.ms", 60_000),
    "log.retention.hours": CoarserUnit("log.retention.ms", 3_600_000),
    "log.roll.hours": CoarserUnit("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": CoarserUnit("log.roll.jitter.ms", 3_600_000),
}
"""What these names say is kept in milliseconds. Of two that are given at one place the finer one holds, as in Kafka."""

OTHER_NAMES = {"log.dir": "log.dirs", "broker.id": "node.id"}
"""Kafka's older names."""

TOPIC_SETTING_BY_BROKER_NAME = {
    setting.broker_name: setting for setting in TOPIC_SETTINGS.values() if setting.broker_name is not None
}


def _topic_default(name: str, setting: Setting) -> Setting:
    return Setting(
        name,
        setting.kind,
        setting.default,
        f"The default of the topics' `{setting.name}`. {setting.meaning}",
        setting.low,
        setting.high,
        setting.choices,
        setting.check,
    )


BROKER_SETTINGS = table(
    sorted(
        [*_OWN_SETTINGS, *(_topic_default(name, setting) for name, setting in TOPIC_SETTING_BY_BROKER_NAME.items())],
        key=lambda setting: setting.name,
    )
)
"""Every setting of a broker, by name. Only those marked changeable can be set while it runs."""


_OWN_TABLE = table(_OWN_SETTINGS)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """A broker's settings, resolved. The defaults of topic settings are in `topic_defaults` and `topic_settings`."""

    advertised_listeners: tuple[str, ...] = ()
    auto_create_topics_enable: bool = True
    broker_rack: str = ""
    cold_read_threads: int = 4
    connections_max_idle_ms: int = 600_000
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    fetch_max_bytes: int = 57_671_680
    flush_threads: int = 8
    group_consumer_heartbeat_interval_ms: int = 1000
    group_consumer_max_size: int = 1000
    group_consumer_session_timeout_ms: int = 45_000
    group_heartbeat_hold_ms: int = 2900
    group_initial_rebalance_delay_ms: int = 100
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1000
    group_min_session_timeout_ms: int = 6000
    groups_max: int = 100_000
    lag_check_interval_ms: int = 5000
    lag_warning_ms: int = 3_600_000
    listeners: tuple[str, ...] = ("PLAINTEXT://127.0.0.1:9092",)
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_enable: bool = True
    log_dirs: str = "./cordwood-data"
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    max_connections: int = 10_000
    max_incremental_fetch_session_cache_slots: int = 1000
    max_request_partition_size_limit: int = 2000
    metrics_hot_keys: bool = False
    metrics_listener: str = ""
    node_id: int = 1
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    offsets_topic_num_partitions: int = 50
    offsets_topic_replication_factor: int = 1
    offsets_topic_segment_bytes: int = 104_857_600
    open_files_max: int = 2048
    partitions_max: int = 50_000
    producer_id_expiration_ms: int = 86_400_000
    queued_max_request_bytes: int = 268_435_456
    socket_request_max_bytes: int = 104_857_600
    tail_memory_max_bytes: int = 67_108_864
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_state_log_min_isr: int = 1
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_replication_factor: int = 1
    transaction_state_log_segment_bytes: int = 104_857_600
    transactional_id_expiration_ms: int = 604_800_000
    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What was set, by the setting's name: everything else is at its default."""

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> "BrokerSettings":
        """From what was set, by name. Raises InvalidSetting: unknown names, values out of bounds, contradictions."""
        for name in texts:
            if name not in BROKER_SETTINGS:
                raise InvalidSetting(f"Unknown broker config name: {name}")
        settings = cls._of(texts)
        settings.check_together()
        return settings

    @classmethod
    def _of(cls, texts: Mapping[str, str]) -> "BrokerSettings":
        values: dict[str, Any] = attribute_values(_OWN_TABLE, texts)
        settings = cls(**values, texts=MappingProxyType(dict(sorted(texts.items()))))
        resolve({}, settings.topic_defaults)
        return settings

    def check_together(self) -> None:
        """Raises InvalidSetting if settings that are valid each by itself contradict each other."""
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidSetting(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least "
                f"socket.request.max.bytes ({self.socket_request_max_bytes}): a request of that size would never fit"
            )
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise InvalidSetting(
                f"group.max.session.timeout.ms ({self.group_max_session_timeout_ms}) must be at least "
                f"group.min.session.timeout.ms ({self.group_min_session_timeout_ms})"
            )
        if self.group_consumer_session_timeout_ms <= self.group_consumer_heartbeat_interval_ms:
            raise InvalidSetting(
                f"group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms}) must be more than "
                f"group.consumer.heartbeat.interval.ms ({self.group_consumer_heartbeat_interval_ms})"
            )
        check_together(self.topic_settings)

    def changed_by(self, *layers: Mapping[str, str]) -> "BrokerSettings":
        """These settings with what was set while the broker runs laid over them, later layers over earlier ones.

        A stored text that this version does not take is left out, so that a broker always starts.
        """
        texts = dict(self.texts)
        for layer in layers:
            for name, text in layer.items():
                setting = BROKER_SETTINGS.get(name)
                if setting is not None and setting.changeable and _is_valid(setting, text):
                    texts[name] = text
        return BrokerSettings._of(texts)

    @property
    def topic_defaults(self) -> dict[str, str]:
        """What was set of the topics' defaults, by broker-wide name: what `topic_settings.resolve` takes."""
        return {name: text for name, text in self.texts.items() if name in TOPIC_SETTING_BY_BROKER_NAME}

    @property
    def topic_settings(self) -> TopicSettings:
        """The settings of a topic on which nothing was set."""
        return resolve({}, self.topic_defaults)

    @property
    def data_directory(self) -> str:
        return self.log_dirs

    @property
    def listener(self) -> Listener:
        return parse_listener(self.listeners[0])

    @property
    def metrics_address(self) -> Listener | None:
        """Where metrics are served; None: nowhere."""
        return parse_listener(self.metrics_listener) if self.metrics_listener else None

    @property
    def advertised_listener(self) -> Listener | None:
        """What to tell clients; None: the address that is listened on."""
        return parse_listener(self.advertised_listeners[0]) if self.advertised_listeners else None


def check_together(settings: TopicSettings) -> None:
    """Raises InvalidSetting if a topic's settings contradict each other."""
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise InvalidSetting(
            f"conflict topic config setting min.compaction.lag.ms ({settings.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({settings.max_compaction_lag_ms})"
        )


def _is_valid(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except InvalidSetting:
        return False
    return True

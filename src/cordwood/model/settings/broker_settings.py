"""The settings of a broker: Kafka's names for what Kafka has, and a few of our own.

Each setting is declared in the file of its area (network_settings.py, storage_settings.py, cluster_settings.py,
replication_settings.py, group_settings.py): name, kind, default, meaning and bounds. This module joins the areas, and
adds the default of every topic setting under its broker-wide name: `retention.ms` of a topic that does not set it is
the broker's `log.retention.ms`.

The areas are dataclasses without methods of their own: generating methods that only `BrokerSettings` needs would
delay every start of a broker by some milliseconds.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from cordwood.model.credentials import OAUTHBEARER
from cordwood.model.settings.authorizer_settings import AuthorizerSettings
from cordwood.model.settings.by_listener import at_listener, value_at
from cordwood.model.settings.cluster_settings import ClusterSettings, StoreAddress, parse_store_address
from cordwood.model.settings.group_settings import GroupSettings, TransactionSettings
from cordwood.model.settings.listeners import (
    HTTPS,
    Asks,
    Listener,
    ListenerAddress,
    parse_address,
    resolve_listeners,
)
from cordwood.model.settings.network_settings import NetworkSettings, ObservationSettings
from cordwood.model.settings.oauth_settings import OAuthSettings, token_trust_of
from cordwood.model.settings.quota_settings import QuotaSettings
from cordwood.model.settings.replication_settings import CORDONED, RACK_AWARE_SELECTOR, ReplicationSettings
from cordwood.model.settings.sasl_settings import BrokersLogIn, SaslSettings, brokers_log_in
from cordwood.model.settings.setting import InvalidSetting, Setting, attribute_values, settings_of, table
from cordwood.model.settings.storage_settings import StorageSettings, directories_in
from cordwood.model.settings.tls_settings import ListenerTls, TlsSettings, tls_of
from cordwood.model.settings.token_settings import DelegationTokenSettings
from cordwood.model.settings.topic_settings import TOPIC_SETTINGS, TopicSettings, resolve
from cordwood.model.settings.trail_settings import AUTOMATIC, TrailSettings
from cordwood.model.token_trust import KeySource


class CoarserUnit(NamedTuple):
    """A coarser unit that Kafka also takes for a setting."""

    name: str
    factor: int


COARSER_UNITS = {
    "log.retention.minutes": CoarserUnit("log.retention.ms", 60_000),
    "log.retention.hours": CoarserUnit("log.retention.ms", 3_600_000),
    "log.roll.hours": CoarserUnit("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": CoarserUnit("log.roll.jitter.ms", 3_600_000),
}
"""Kafka's names of settings in coarser units; the broker keeps milliseconds. If one place gives two names, the finer
one holds, as in Kafka."""

OTHER_NAMES = {"log.dir": "log.dirs", "broker.id": "node.id"}
"""Kafka's older names."""


@dataclass(frozen=True)
class BrokerSettings(
    NetworkSettings,
    TlsSettings,
    SaslSettings,
    OAuthSettings,
    DelegationTokenSettings,
    AuthorizerSettings,
    QuotaSettings,
    StorageSettings,
    ClusterSettings,
    ReplicationSettings,
    GroupSettings,
    TransactionSettings,
    ObservationSettings,
    TrailSettings,
):
    """A broker's settings, resolved. The defaults of topic settings are in `topic_defaults` and `topic_settings`."""

    texts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """The texts that were set, by the setting's name, also of settings of one listener; every other setting has its
    default. Secrets are among them."""

    @classmethod
    def from_texts(cls, texts: Mapping[str, str]) -> "BrokerSettings":
        """Parses the texts that were set, by name. Raises InvalidSetting for unknown names, values out of bounds and
        contradictions."""
        for name in texts:
            if broker_setting(name) is None:
                raise InvalidSetting(f"Unknown broker config name: {name}")
        if texts.get(CORDONED):
            raise InvalidSetting(f"{CORDONED} is set while the broker runs: `cordwood cluster cordon` does so")
        settings = cls._of(texts)
        settings.check_together()
        return settings

    @classmethod
    def _of(cls, texts: Mapping[str, str]) -> "BrokerSettings":
        values: dict[str, Any] = attribute_values(_OWN_SETTINGS, texts)
        settings = cls(**values, texts=MappingProxyType(dict(sorted(texts.items()))))
        resolve({}, settings.topic_defaults)
        return settings

    def check_together(self) -> None:
        """Raises InvalidSetting, which names all contradictions between settings that are valid each by itself."""
        checks = (
            self._check_requests,
            self._check_sessions,
            self._check_heartbeats,
            self._check_listeners,
            self._check_cluster,
            lambda: check_together(self.topic_settings),
        )
        problems: list[str] = []
        for check in checks:
            try:
                check()
            except InvalidSetting as error:
                problems.extend(error.problems)
        if problems:
            raise InvalidSetting(*problems)

    def _check_requests(self) -> None:
        if self.queued_max_request_bytes < self.socket_request_max_bytes:
            raise InvalidSetting(
                f"queued.max.request.bytes ({self.queued_max_request_bytes}) must be at least "
                f"socket.request.max.bytes ({self.socket_request_max_bytes}): a request of that size would never fit"
            )

    def _check_sessions(self) -> None:
        if self.group_max_session_timeout_ms < self.group_min_session_timeout_ms:
            raise InvalidSetting(
                f"group.max.session.timeout.ms ({self.group_max_session_timeout_ms}) must be at least "
                f"group.min.session.timeout.ms ({self.group_min_session_timeout_ms})"
            )

    def _check_heartbeats(self) -> None:
        if self.group_consumer_session_timeout_ms <= self.group_consumer_heartbeat_interval_ms:
            raise InvalidSetting(
                f"group.consumer.session.timeout.ms ({self.group_consumer_session_timeout_ms}) must be more than "
                f"group.consumer.heartbeat.interval.ms ({self.group_consumer_heartbeat_interval_ms})"
            )

    def _check_listeners(self) -> None:
        listeners = self.listener_list
        problems: list[str] = []
        names = {listener.name for listener in listeners}
        if self.metrics_address is not None and self.metrics_address.name == HTTPS:
            names.add(HTTPS)
        for name in self.texts:
            own = at_listener(name, BROKER_SETTINGS)
            if own is not None and own.listener not in names:
                problems.append(
                    f"{name} is for the listener {own.listener}, and there is only {', '.join(sorted(names))}"
                )
        checks: list[Callable[[], object]] = [tls.check for tls in self.tls_listeners.values()]
        checks += [partial(self.asks_at, listener) for listener in listeners]
        for check in checks:
            try:
                check()
            except InvalidSetting as error:
                problems.extend(error.problems)
        if self.cluster_store:
            problems.extend(self._problems_between_brokers())
        if problems:
            raise InvalidSetting(*problems)

    def _problems_between_brokers(self) -> Iterator[str]:
        inner = self.brokers_listener
        try:
            if inner.speaks_tls:
                self.tls_listeners[inner.name].check_between_brokers()
        except InvalidSetting as error:
            yield from error.problems
        try:
            _ = self.brokers_log_in
        except InvalidSetting as error:
            yield from error.problems

    def _check_cluster(self) -> None:
        if not self.cluster_store:
            if self.cluster_name:
                raise InvalidSetting("cluster.name needs cluster.store: where the cluster keeps its metadata")
            return
        problems: list[str] = []
        if not self.cluster_name or "/" in self.cluster_name:
            problems.append(
                f"cluster.store needs cluster.name, without a slash, and it is {self.cluster_name!r}: brokers of one "
                "name are one cluster"
            )
        if "node.id" not in self.texts:
            problems.append("cluster.store needs node.id: each broker of a cluster has a number of its own")
        if problems:
            raise InvalidSetting(*problems)

    def changed_by(self, *layers: Mapping[str, str]) -> "BrokerSettings":
        """The settings, overlaid with those that were set while the broker runs; later layers win.

        A stored text that this version does not accept is left out, so that a broker always starts.
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
        """The topics' defaults that were set, as texts by broker-wide name: the argument of
        `topic_settings.resolve`."""
        return {name: text for name, text in self.texts.items() if name in TOPIC_SETTING_BY_BROKER_NAME}

    @property
    def topic_settings(self) -> TopicSettings:
        """The settings of a topic on which nothing was set."""
        return resolve({}, self.topic_defaults)

    @property
    def data_directories(self) -> tuple[str, ...]:
        """The directories of the logs: at least one."""
        return directories_in(self.log_dirs)

    @property
    def reads_at_followers(self) -> bool:
        """True if consumers read from a follower in their rack."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def listener_list(self) -> tuple[Listener, ...]:
        """The listeners, at least one, in the order of `listeners`."""
        return resolve_listeners(
            self.listeners,
            self.advertised_listeners,
            self.listener_security_protocol_map,
            self.inter_broker_listener_name,
        )

    @property
    def brokers_listener(self) -> Listener:
        """The listener that brokers use among themselves."""
        return next(listener for listener in self.listener_list if listener.between_brokers)

    @property
    def brokers_log_in(self) -> BrokersLogIn | None:
        """How this broker logs in at others; None: it does not. Raises InvalidSetting."""
        inner = self.brokers_listener
        asks = self.asks_at(inner) if self.cluster_store else None
        if asks is None:
            return None
        return brokers_log_in(self, self.sasl_mechanism_inter_broker_protocol, inner.name, asks.mechanisms)

    def asks_at(self, listener: Listener) -> Asks | None:
        """How a listener asks its peers who they are; None: it asks nobody. Raises InvalidSetting for tokens without
        keys."""
        if not listener.speaks_sasl:
            return None
        mechanisms, session_ms = (
            value_at(self, BROKER_SETTINGS[name], listener.name)
            for name in ("sasl.enabled.mechanisms", "connections.max.reauth.ms")
        )
        assert isinstance(mechanisms, tuple)
        assert isinstance(session_ms, int)
        return Asks(mechanisms, session_ms, token_trust_of(self, listener.name) if OAUTHBEARER in mechanisms else None)

    @property
    def key_sources(self) -> list[KeySource]:
        """The places of the keys of tokens, each once."""
        asked = map(self.asks_at, self.listener_list)
        return list(dict.fromkeys(asks.tokens.source for asks in asked if asks is not None and asks.tokens is not None))

    @property
    def keeps_security_trail(self) -> bool:
        """True if changes and refusals are written down: by default where the broker asks who somebody is, or what he
        may do."""
        if self.security_trail_enable != AUTOMATIC:
            return self.security_trail_enable == "true"
        return bool(self.authorizer_class_name) or any(listener.speaks_sasl for listener in self.listener_list)

    @property
    def tls_listeners(self) -> dict[str, ListenerTls]:
        """The settings of TLS by the names of the listeners that speak it; HTTPS is the one of metrics."""
        names = [listener.name for listener in self.listener_list if listener.speaks_tls]
        if self.metrics_address is not None and self.metrics_address.name == HTTPS:
            names.append(HTTPS)
        return {name: tls_of(self, name) for name in names}

    @property
    def store_address(self) -> StoreAddress:
        """The address of the cluster's metadata store, for a broker with `cluster.store`."""
        return parse_store_address(self.cluster_store)

    @property
    def metrics_address(self) -> ListenerAddress | None:
        """The address at which metrics are served; None: nowhere."""
        return parse_address(self.metrics_listener) if self.metrics_listener else None


TOPIC_SETTING_BY_BROKER_NAME = {
    setting.broker_name: setting for setting in TOPIC_SETTINGS.values() if setting.broker_name is not None
}


_CHANGEABLE = frozenset(
    {
        CORDONED,
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "producer.id.expiration.ms",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Settings of a broker that are read whenever they are used."""

_OWN_SETTINGS = table(
    replace(setting, changeable=True) if setting.name in _CHANGEABLE else setting
    for setting in settings_of(BrokerSettings, changeable=False)
)


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
        [
            *_OWN_SETTINGS.values(),
            *(_topic_default(name, setting) for name, setting in TOPIC_SETTING_BY_BROKER_NAME.items()),
        ],
        key=lambda setting: setting.name,
    )
)
"""Every setting of a broker, by name. Only those marked changeable can be set while it runs."""


def broker_setting(name: str) -> Setting | None:
    """The setting of this name, also one of a single listener (`listener.name.NAME.SETTING`); None: there is none."""
    setting = BROKER_SETTINGS.get(name)
    if setting is not None or (own := at_listener(name, BROKER_SETTINGS)) is None:
        return setting
    return replace(own.setting, name=name)


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

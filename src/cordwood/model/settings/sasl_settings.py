"""The settings of SASL: how a listener asks its peers who they are, and how brokers log in at each other."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from cordwood.model.credentials import SASL_MECHANISMS, SCRAM_NAMES, ScramMechanism
from cordwood.model.jaas import LogIn, parse_jaas
from cordwood.model.settings.by_listener import Settings, listener_setting, value_at
from cordwood.model.settings.setting import (
    InvalidSetting,
    Value,
    int32,
    int64,
    password,
    settings_of,
    string,
    string_list,
    table,
)


def check_mechanisms(value: Value) -> str | None:
    assert isinstance(value, tuple)
    return None if value else "must name a mechanism: without one nobody could log in"


def _check_jaas(value: Value) -> str | None:
    try:
        if value:
            parse_jaas(str(value))
    except ValueError as error:
        return str(error)
    return None


def _jaas(mechanism: ScramMechanism) -> str:
    """The setting of the brokers' own user for a mechanism."""
    return password(
        f"The user by which a broker logs in at others by {mechanism.sasl_name}, as Kafka writes it: "
        '`org.apache.kafka.common.security.scram.ScramLoginModule required username="broker" password="...";`. '
        "Needed where the brokers' listener speaks SASL, for `sasl.mechanism.inter.broker.protocol`. A secret.",
        name=jaas_setting(mechanism),
        check=_check_jaas,
        by_listener=True,
    )


def jaas_setting(mechanism: ScramMechanism) -> str:
    """The name of the setting that has the brokers' own user for a mechanism."""
    return f"{mechanism.sasl_name.lower()}.sasl.jaas.config"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SaslSettings:
    """Mechanisms, how long a log-in lasts, and the brokers' own user."""

    connection_failed_authentication_delay_ms: int = int32(
        100,
        "How long a peer that failed to log in waits for its refusal, before its connection is closed. Nobody else "
        "waits. It makes guessing slow.",
        low=0,
        high=5000,
    )
    connections_max_reauth_ms: int = int64(
        0,
        "After this time a client of a listener with SASL has to log in again, on the same connection (KIP-368) and as "
        "the same user. From then on the broker takes nothing else of it, whatever version it speaks. Clients that can "
        "do so log in again by themselves; those that cannot lose their connection, and connect anew. 0: never.",
        low=0,
        by_listener=True,
    )
    sasl_enabled_mechanisms: tuple[str, ...] = string_list(
        tuple(SCRAM_NAMES),
        "The mechanisms by which clients of listeners with SASL log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, and "
        "OAUTHBEARER for tokens of an identity provider. PLAIN and OAUTHBEARER send password or token as it is, so "
        "that they belong on a listener with TLS.",
        choices=SASL_MECHANISMS,
        check=check_mechanisms,
        by_listener=True,
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        ScramMechanism.SHA_512.sasl_name,
        "The mechanism by which brokers log in at each other, where their listener speaks SASL. "
        "`sasl.enabled.mechanisms` of that listener has to have it.",
        choices=tuple(SCRAM_NAMES),
    )
    scram_sha_256_sasl_jaas_config: str = _jaas(ScramMechanism.SHA_256)
    scram_sha_512_sasl_jaas_config: str = _jaas(ScramMechanism.SHA_512)


_TABLE: Final = table(settings_of(SaslSettings, changeable=False))


class BrokersLogIn(NamedTuple):
    """How brokers log in at each other."""

    mechanism: ScramMechanism
    user: LogIn


def brokers_log_in(settings: Settings, mechanism_name: str, listener: str, taken: tuple[str, ...]) -> BrokersLogIn:
    """How brokers log in at their listener, which takes the mechanisms `taken`. Raises InvalidSetting."""
    if mechanism_name not in taken:
        raise InvalidSetting(
            f"sasl.mechanism.inter.broker.protocol is {mechanism_name}, and the brokers' listener {listener} takes "
            f"{', '.join(taken)} (sasl.enabled.mechanisms)"
        )
    mechanism = SCRAM_NAMES[mechanism_name]
    text = value_at(settings, _TABLE[jaas_setting(mechanism)], listener)
    if not text:
        raise InvalidSetting(
            f"the brokers of the cluster log in at each other at the listener {listener}, and have no user to do so: "
            f"set {listener_setting(listener, jaas_setting(mechanism))} in the configuration file or the environment"
        )
    return BrokersLogIn(mechanism, parse_jaas(str(text)))

"""The settings of SASL: how a listener asks its peers who they are."""

from dataclasses import dataclass

from cordwood.model.credentials import SASL_MECHANISMS, SCRAM_NAMES
from cordwood.model.settings.setting import Value, int32, int64, string_list


def check_mechanisms(value: Value) -> str | None:
    assert isinstance(value, tuple)
    return None if value else "must name a mechanism: without one nobody could log in"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class SaslSettings:
    """Mechanisms, and how long a log-in lasts."""

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
        "The mechanisms by which clients of listeners with SASL log in: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN. PLAIN "
        "sends the password as it is, so that it belongs on a listener with TLS.",
        choices=SASL_MECHANISMS,
        check=check_mechanisms,
        by_listener=True,
    )

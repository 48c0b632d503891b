"""Where the brokers of a cluster are, and how a client gets in: one value for all clients of a program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cordwood.client.settings import ClientSettings
from cordwood.security.connection_settings import PLAIN_TEXT, Security, parse_security

SERVERS: Final = "bootstrap.servers"


@dataclass(frozen=True)
class Bootstrap:
    """Its texts have no secret, except that of `to_text`."""

    servers: str
    """`host:port` of some brokers, separated by commas."""
    security: Security = PLAIN_TEXT

    @classmethod
    def of(cls, given: str | Mapping[str, str] | Bootstrap) -> Bootstrap:
        """Addresses of brokers that speak plain text; or the settings of a client on librdkafka, of which those of its
        connection count. Raises ValueError."""
        if isinstance(given, Bootstrap):
            return given
        if isinstance(given, str):
            return cls(given)
        if not given.get(SERVERS):
            raise ValueError(f"{SERVERS} is missing: say where the brokers are, as host:9092")
        return cls(given[SERVERS], parse_security(given))

    def __str__(self) -> str:
        return self.servers

    def settings(self, **others: Any) -> ClientSettings:
        """The settings of a client of ours; `others` are fields of them."""
        return ClientSettings(self.servers, security=self.security, **others)

    def for_librdkafka(self) -> dict[str, str]:
        return {SERVERS: self.servers, **self.security.for_librdkafka()}

    def to_text(self) -> str:
        """A text for another process of the same program. It has the secrets."""
        return json.dumps(self.for_librdkafka())

    @classmethod
    def from_text(cls, text: str) -> Bootstrap:
        return cls.of(json.loads(text))

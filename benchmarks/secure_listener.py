"""A second listener of a broker under test: SASL_SSL with SCRAM-SHA-256 and PLAIN.

The benchmarks make topics and users at the plain listener, whose settings stay; what is measured goes to this one.
Both systems get a certificate of the same kind, ECDSA on P-256, and TLS 1.3. Both take AES-256 in GCM, which OpenSSL's
clients name first.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from benchmarks.kafka_peer import free_port
from cordwood.broker.secure.authority import new_authority, new_keystore

USER, PASSWORD = "bench", "no-secret"
ITERATIONS = 4096


@dataclass(frozen=True)
class SecureListener:
    """The listener and its files, which are in `directory`."""

    directory: Path
    port: int = field(default_factory=free_port)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def write_files(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        key, authority = new_authority(now)
        self._keystore.write_text(new_keystore(key, authority, ["127.0.0.1"], now))
        self._authority.write_text(authority)

    def of_cordwood(self, plain: str) -> dict[str, str]:
        """Settings of a broker whose plain listener is at this address."""
        return {
            "listeners": f"PLAINTEXT://{plain},SASL_SSL://{self.bootstrap}",
            "inter.broker.listener.name": "PLAINTEXT",
            **self._of_both,
        }

    def of_kafka(self, plain: str, controller_port: int) -> dict[str, str]:
        clients = f"PLAINTEXT://{plain},SASL_SSL://{self.bootstrap}"
        return {
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": (
                f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
            ),
            **self._of_both,
        }

    @property
    def _of_both(self) -> dict[str, str]:
        return {
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.enabled.protocols": "TLSv1.3",
        }

    def client(self, mechanism: str) -> dict[str, str]:
        """The properties of a client, under librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._authority),
            # Before 2.2 librdkafka takes an address for a host name, and refuses the certificate.
            "ssl.endpoint.identification.algorithm": "none",
            "sasl.mechanism": mechanism,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    @property
    def _keystore(self) -> Path:
        return self.directory / "broker.pem"

    @property
    def _authority(self) -> Path:
        return self.directory / "ca.pem"


def add_user(bootstrap: str, *, timeout_s: float = 30) -> None:
    """Adds the user of the clients, at the plain listener."""
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, ITERATIONS)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    wanted: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())]
    for done in admin.alter_user_scram_credentials(wanted, request_timeout=timeout_s).values():
        done.result()

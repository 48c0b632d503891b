"""The settings of TLS, under Kafka's names: for all listeners (`ssl.client.auth`), and for one of them
(`listener.name.clients.ssl.client.auth`)."""

from dataclasses import dataclass, field
from typing import Final

from cordwood.model.settings.by_listener import Settings, listener_setting, value_at
from cordwood.model.settings.principal_rules import check_rules
from cordwood.model.settings.setting import InvalidSetting, Value, password, settings_of, string, string_list, table

PEM: Final = "PEM"
NO_CERTIFICATE: Final = "none"
REQUESTED: Final = "requested"
REQUIRED: Final = "required"
CHECK_HOSTS: Final = "https"
TLS_1_2: Final = "TLSv1.2"
TLS_1_3: Final = "TLSv1.3"


def conversion(kind: str, file: str) -> str:
    """The command that makes a PEM file of a PKCS12 or JKS file."""
    name, dot, ending = file.rpartition(".")
    stem = name if dot and "/" not in ending else file
    if kind != "JKS":
        return f"openssl pkcs12 -in {file} -nodes -out {stem}.pem"
    to_pkcs12 = f"keytool -importkeystore -srckeystore {file} -destkeystore {stem}.p12 -deststoretype PKCS12"
    return f"{to_pkcs12} && {conversion('PKCS12', f'{stem}.p12')}"


def _check_type(value: Value) -> str | None:
    kind = str(value).upper()
    if kind == PEM:
        return None
    if kind in ("JKS", "PKCS12"):
        return f"only {PEM} is supported: convert the file with `{conversion(kind, 'FILE')}`"
    return f"must be {PEM}"


def _check_versions(value: Value) -> str | None:
    return None if value else f"must name {TLS_1_2}, {TLS_1_3} or both"


@dataclass(frozen=True, init=False, repr=False, eq=False)
class TlsSettings:
    """Keys, certificates and rules of listeners with TLS."""

    ssl_cipher_suites: tuple[str, ...] = string_list(
        (),
        "The cipher suites that may be used, with their IANA names (`TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`). Not "
        "set: those of OpenSSL. A version of TLS of which no suite is named is not spoken; of TLS 1.3 all three suites "
        "of OpenSSL are named, or none.",
        by_listener=True,
    )
    ssl_client_auth: str = string(
        NO_CERTIFICATE,
        "Whether clients prove by a certificate who they are: `required`; `requested`, where a client without one is "
        "User:ANONYMOUS; or `none`.",
        choices=(NO_CERTIFICATE, REQUESTED, REQUIRED),
        by_listener=True,
    )
    ssl_enabled_protocols: tuple[str, ...] = string_list(
        (TLS_1_2, TLS_1_3),
        "The versions of TLS that may be used.",
        choices=(TLS_1_2, TLS_1_3),
        check=_check_versions,
        by_listener=True,
    )
    ssl_endpoint_identification_algorithm: str = string(
        CHECK_HOSTS,
        "Whether brokers that dial each other at a listener with TLS check that the certificate names the host: "
        "`https`, or empty for certificates without host names.",
        choices=(CHECK_HOSTS, ""),
        by_listener=True,
    )
    ssl_key_password: str = password(
        "The password of the private key, if the key is encrypted. A secret: it stands in the configuration file or in "
        "the environment, not in `--set`.",
        by_listener=True,
    )
    ssl_keystore_certificate_chain: str = string(
        "",
        "The broker's certificate, and those up to its authority, as the text of a PEM file. Needs `ssl.keystore.key`, "
        "in place of `ssl.keystore.location`.",
        by_listener=True,
    )
    ssl_keystore_key: str = password(
        "The private key as the text of a PEM file (PKCS #8), for `ssl.keystore.certificate.chain`. A secret.",
        by_listener=True,
    )
    ssl_keystore_location: str = string(
        "",
        "The PEM file with the broker's private key, its certificate, and those up to its authority, in this order. "
        "Every listener with TLS needs one. A changed file is noticed within 10 s and serves the next connection.",
        by_listener=True,
    )
    ssl_keystore_type: str = string(
        PEM,
        "The format of `ssl.keystore.location`: PEM.",
        check=_check_type,
        by_listener=True,
    )
    ssl_principal_mapping_rules: str = string(
        "DEFAULT",
        "How the subject of a client's certificate becomes the name of its user: rules `DEFAULT` (the subject, as in "
        "`CN=alice,O=Woods`) and `RULE:PATTERN/REPLACEMENT/` with `L` or `U` behind it, with commas between them. The "
        "first rule that matches holds; a client that no rule matches is refused.",
        check=check_rules,
        by_listener=True,
    )
    ssl_truststore_certificates: str = string(
        "",
        "The certificates of authorities that sign those of clients, as the text of a PEM file, in place of "
        "`ssl.truststore.location`.",
        by_listener=True,
    )
    ssl_truststore_location: str = string(
        "",
        "The PEM file with the certificates of authorities that sign those of clients, and of other brokers. Needed "
        "where `ssl.client.auth` is not `none`, and at the listener of brokers; a changed file is noticed as that of "
        "the keystore.",
        by_listener=True,
    )
    ssl_truststore_type: str = string(
        PEM, "The format of `ssl.truststore.location`: PEM.", check=_check_type, by_listener=True
    )


@dataclass(frozen=True)
class ListenerTls:
    """The settings of TLS at one listener."""

    listener: str
    keystore_location: str
    keystore_key: str = field(repr=False)
    certificate_chain: str
    key_password: str = field(repr=False)
    truststore_location: str
    truststore_certificates: str
    client_auth: str
    versions: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    principal_rules: str
    checks_hosts: bool

    def check(self) -> None:
        """Raises InvalidSetting if settings are missing or contradict each other."""
        problems: list[str] = []
        if not self.keystore_location and not (self.keystore_key and self.certificate_chain):
            problems.append(
                f"the listener {self.listener} speaks TLS and has no certificate: set ssl.keystore.location, or "
                f"{listener_setting(self.listener, 'ssl.keystore.location')}, to a PEM file with its key and "
                "certificate"
            )
        if self.keystore_location and (self.keystore_key or self.certificate_chain):
            problems.append(
                f"the listener {self.listener} has two certificates: ssl.keystore.location, and ssl.keystore.key with "
                "ssl.keystore.certificate.chain"
            )
        if self.truststore_location and self.truststore_certificates:
            problems.append(
                f"the listener {self.listener} has both ssl.truststore.location and ssl.truststore.certificates"
            )
        if self.client_auth != NO_CERTIFICATE and not (self.truststore_location or self.truststore_certificates):
            problems.append(
                f"the listener {self.listener} asks clients for certificates (ssl.client.auth={self.client_auth}) and "
                "has no authorities to check them with: set ssl.truststore.location"
            )
        if problems:
            raise InvalidSetting(*problems)

    def check_between_brokers(self) -> None:
        """Raises InvalidSetting if brokers cannot check each other's certificates at this listener."""
        if not (self.truststore_location or self.truststore_certificates):
            raise InvalidSetting(
                f"the brokers of the cluster use the listener {self.listener} among themselves, and have no "
                "authorities to check each other's certificates with: set ssl.truststore.location, or "
                f"{listener_setting(self.listener, 'ssl.truststore.location')}"
            )


_TABLE: Final = table(settings_of(TlsSettings, changeable=False))


def tls_of(settings: Settings, listener: str) -> ListenerTls:
    """The settings of TLS at a listener."""

    def text(name: str) -> str:
        return str(value_at(settings, _TABLE[name], listener))

    def several(name: str) -> tuple[str, ...]:
        value = value_at(settings, _TABLE[name], listener)
        assert isinstance(value, tuple)
        return value

    return ListenerTls(
        listener,
        text("ssl.keystore.location"),
        text("ssl.keystore.key"),
        text("ssl.keystore.certificate.chain"),
        text("ssl.key.password"),
        text("ssl.truststore.location"),
        text("ssl.truststore.certificates"),
        text("ssl.client.auth"),
        several("ssl.enabled.protocols"),
        several("ssl.cipher.suites"),
        text("ssl.principal.mapping.rules"),
        text("ssl.endpoint.identification.algorithm") == CHECK_HOSTS,
    )

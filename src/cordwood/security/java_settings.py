"""The settings of a Java client's security, as the same settings under librdkafka's names.

Keys and certificates are PEM here. A Java client reads JKS unless its settings say otherwise, so a file without a
type is refused as well, with the line that makes a PEM file of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cordwood.model.credentials import PLAIN
from cordwood.security.connection_settings import (
    CA_LOCATION,
    CA_PEM,
    CERTIFICATE,
    CERTIFICATE_PEM,
    KEY_PEM,
    MECHANISM,
    NAMES,
    PASSWORD,
    TOKEN_AUTH,
    USERNAME,
)

TRUSTSTORE: Final = "ssl.truststore"
KEYSTORE: Final = "ssl.keystore"
JAAS: Final = "sasl.jaas.config"
_RENAMED: Final = {
    "ssl.truststore.location": CA_LOCATION,
    "ssl.truststore.certificates": CA_PEM,
    "ssl.keystore.location": CERTIFICATE,
    "ssl.keystore.certificate.chain": CERTIFICATE_PEM,
    "ssl.keystore.key": KEY_PEM,
}
_STORES: Final = {f"{store}.{part}": store for store in (TRUSTSTORE, KEYSTORE) for part in ("type", "password")}
JAVA_NAMES: Final = (*_RENAMED, *_STORES, JAAS)
"""Names that Java's clients have, and librdkafka has not."""

_PEM: Final = "PEM"
_PKCS12: Final = "PKCS12"
_LOG_INS: Final = {"PlainLoginModule": False, "ScramLoginModule": True}
"""By the class of a log-in: whether it is one of SCRAM. Some makers of Spark move the classes to packages of theirs."""
_EXAMPLE: Final = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="...";'
_TOKEN: Final = re.compile(r"""\s*(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<mark>[=;])|(?P<word>[^\s=;"]+))""", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\([0-7]{1,3}|.)", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def in_librdkafkas_names(given: Mapping[str, str]) -> dict[str, str]:
    """The settings with Java's names replaced; librdkafka's own names are taken, too, and others left out. Raises
    ValueError, with the setting's name and the cure, and without any value that is a secret."""
    settings = {name: value for name, value in given.items() if name in NAMES}
    for name, own in _RENAMED.items():
        if name not in given:
            continue
        if own in settings:
            raise ValueError(f"{name} and {own} are one setting: keep one of them")
        settings[own] = given[name]
    for store in (TRUSTSTORE, KEYSTORE):
        _check_store(given, store)
    if JAAS in given:
        own_names = [name for name in (USERNAME, PASSWORD) if name in given]
        if own_names:
            raise ValueError(f"{JAAS} and {own_names[0]} both say who logs in: keep one of them")
        settings |= _log_in(given[JAAS], given.get(MECHANISM, ""))
    return settings


def _check_store(given: Mapping[str, str], store: str) -> None:
    """Refuses what is no PEM."""
    location = given.get(f"{store}.location", "")
    kind = given.get(f"{store}.type", "").upper()
    if kind != _PEM and (kind or location):
        told = f"{store}.type={given[f'{store}.type']!r:.40}" if kind else f"{store}.type is missing, and Java's is JKS"
        raise ValueError(
            f"{told}: keys and certificates are PEM here: {_conversion(store, kind, location)}; then {store}.type=PEM"
        )
    if given.get(f"{store}.password"):
        raise ValueError(f"{store}.password has no meaning for PEM: ssl.key.password opens an encrypted key")


def _conversion(store: str, kind: str, location: str) -> str:
    file = location or "FILE"
    if store == TRUSTSTORE:
        return f"`keytool -list -rfc -keystore {file} > ca.pem` makes a PEM file of it"
    if kind == _PKCS12:
        return f"`openssl pkcs12 -in {file} -nodes -out client.pem` makes a PEM file of it"
    return (
        f"`keytool -importkeystore -srckeystore {file} -destkeystore client.p12 -deststoretype PKCS12` and "
        "`openssl pkcs12 -in client.p12 -nodes -out client.pem` make a PEM file of it"
    )


def _log_in(text: str, mechanism: str) -> dict[str, str]:
    """The user of a line of JAAS."""
    tokens = list(_tokens(text))
    words = [token for token, is_mark in tokens if not is_mark]
    # CLASS FLAG (NAME = VALUE)* ;
    is_whole = (
        len(tokens) >= 3
        and tokens[-1] == (";", True)
        and len(tokens) % 3 == 0
        and [index for index, (_, is_mark) in enumerate(tokens[:-1]) if is_mark] == [*range(3, len(tokens) - 1, 3)]
        and all(tokens[index][0] == "=" for index in range(3, len(tokens) - 1, 3))
    )
    if not is_whole:
        raise ValueError(f"{JAAS} is not one log-in, such as {_EXAMPLE}")
    module = words[0].rpartition(".")[2]
    values = dict(zip(words[2::2], words[3::2], strict=True))
    if module not in _LOG_INS:
        raise ValueError(f"{JAAS} names {words[0]}: log-ins are by {' or '.join(sorted(_LOG_INS))}")
    if mechanism and _LOG_INS[module] is (mechanism.upper() == PLAIN):
        raise ValueError(f"{JAAS} names {module}, which does not go with {MECHANISM}={mechanism}")
    for name in ("username", "password"):
        if not values.get(name):
            raise ValueError(f"{JAAS} has no {name}")
    by_token = {TOKEN_AUTH: "true"} if values.get("tokenauth", "").lower() == "true" else {}
    return {USERNAME: values["username"], PASSWORD: values["password"], **by_token}


def _tokens(text: str) -> Iterator[tuple[str, bool]]:
    """The tokens of a line, each with whether it is one of the marks `=` and `;`. Ends early at what is none."""
    position, end = 0, len(text.rstrip())
    while position < end:
        found = _TOKEN.match(text, position)
        if found is None:
            return
        position = found.end()
        if found["mark"]:
            yield found["mark"], True
        else:
            yield found["word"] or _ESCAPE.sub(_unescaped, found["quoted"] or ""), False


def _unescaped(escape: re.Match[str]) -> str:
    said = escape[1]
    return chr(int(said, 8)) if said[0] in "01234567" else _CONTROLS.get(said, said)

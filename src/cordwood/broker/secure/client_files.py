"""The directory `secure` of a data directory, and the files in it with which clients reach its broker, or its brokers.

    ca.key, ca.pem            an authority of this directory; clients need ca.pem
    broker.pem                the brokers' key and certificate: written last, so that it says that the rest is there
    librdkafka.properties     how the administrator logs in: for clients on librdkafka, and `cordwood --client-config`
    java.properties           the same for Java's clients and Kafka's tools
    users/NAME/               the same two files for another user

Only the owner may read them. An operator may move those with passwords, and ca.key, elsewhere.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple
from urllib.parse import quote

from cordwood.broker.secure.plain_text import KEYSTORE, SECURE
from cordwood.model.failure import Failure
from cordwood.model.jaas import jaas

ADMIN: Final = "admin"
_SERVERS: Final = "bootstrap.servers="
_MECHANISM: Final = "sasl.mechanism="
_HOLDERS: Final = {"authority": "authority", "librdkafka": "for librdkafka", "java": "for Java"}
"""How lines for people call the files that the administrator needs."""


class ClientFiles(NamedTuple):
    librdkafka: str
    java: str


class SecureDirectory:
    """The directory `secure` of a data directory, by whole paths."""

    def __init__(self, data_directory: str) -> None:
        self.path = os.path.join(os.path.abspath(data_directory), SECURE)

    @classmethod
    def around(cls, client_config: str) -> SecureDirectory | None:
        """The directory of which this file of a client's settings is a part; None if it is of none."""
        parent = os.path.dirname(os.path.abspath(client_config))
        found = cls(os.path.dirname(parent))
        return found if found.path == parent and found.is_complete else None

    @property
    def authority_key(self) -> str:
        return os.path.join(self.path, "ca.key")

    @property
    def authority(self) -> str:
        return os.path.join(self.path, "ca.pem")

    @property
    def keystore(self) -> str:
        return os.path.join(self.path, KEYSTORE)

    @property
    def is_complete(self) -> bool:
        return os.path.exists(self.keystore)

    @property
    def admins_files(self) -> ClientFiles:
        return self.files_of(ADMIN)

    def files_of(self, user: str) -> ClientFiles:
        """The files of a user. Its name may have any character."""
        name = quote(user, safe="")
        if name.startswith("."):
            name = f"%2E{name[1:]}"
        place = self.path if user == ADMIN else os.path.join(self.path, "users", name)
        return ClientFiles(os.path.join(place, "librdkafka.properties"), os.path.join(place, "java.properties"))

    def present_files(self) -> dict[str, str]:
        """The files that the administrator needs, as far as they are there, by what they are for."""
        files = {"authority": self.authority, **self.admins_files._asdict()}
        return {what: path for what, path in files.items() if os.path.exists(path)}

    def in_words(self) -> str:
        """The same for people, as the end of a list."""
        return "".join(f"; {_HOLDERS[what]}: {path}" for what, path in self.present_files().items())

    def servers(self) -> str:
        """The broker's address, from the administrator's files; empty if they are gone."""
        with suppress(OSError), open(self.admins_files.librdkafka, encoding="utf-8") as file:
            return next((line.removeprefix(_SERVERS).strip() for line in file if line.startswith(_SERVERS)), "")
        return ""

    def write_files(self, user: str, password: str, mechanism: str, servers: str) -> ClientFiles:
        """Writes the files of a user. Raises Failure for a password that such files cannot have."""
        if password != password.strip():
            raise Failure("USAGE", "a file of settings cannot have a password that begins or ends with a space")
        files = self.files_of(user)
        make_private_directory(os.path.dirname(files.librdkafka))
        common = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism}
        write_private(
            files.librdkafka,
            _lines(
                servers,
                {**common, "sasl.username": user, "sasl.password": password, "ssl.ca.location": self.authority},
            ),
        )
        of_java = {
            **common,
            "sasl.jaas.config": _escaped(jaas(user, password)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": _escaped(self.authority),
        }
        write_private(files.java, _lines(servers, of_java))
        return files

    def has_files(self, user: str) -> bool:
        """False if there never were any, or their owner has moved them away."""
        return os.path.exists(self.files_of(user).librdkafka)

    def rewrite_files(self, user: str, password: str) -> dict[str, str]:
        """Gives the files of a user another password, if they are there. Returns those that were written. Raises
        Failure."""
        files = self.files_of(user)
        if not self.has_files(user):
            return {}
        with open(files.librdkafka, encoding="utf-8") as file:
            mechanism = next(
                (line.removeprefix(_MECHANISM).strip() for line in file if line.startswith(_MECHANISM)), ""
            )
        return self.write_files(user, password, mechanism, self.servers())._asdict()

    def point_at(self, servers: str) -> None:
        """Gives all files the address at which the broker is reached now."""
        for path in self._all_files():
            with open(path, encoding="utf-8") as file:
                before = file.read().splitlines(keepends=True)
            after = [f"{_SERVERS}{servers}\n" if line.startswith(_SERVERS) else line for line in before]
            if after != before:
                write_private(path, "".join(after))

    def _all_files(self) -> Iterator[str]:
        for place, _, names in os.walk(self.path):
            yield from (os.path.join(place, name) for name in sorted(names) if name.endswith(".properties"))


def make_private_directory(path: str) -> None:
    """A directory that only its owner may enter; those above it are as the system makes them. One that is there loses
    the rights of others. Raises Failure if it is another user's, who could put other keys there."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.stat(path)
    if found.st_uid != os.geteuid():
        raise Failure(
            "STORAGE",
            f"{path} belongs to another user (uid {found.st_uid}), and would have keys and passwords",
            f"look at it, and remove it or give it to the broker's user: chown -R {os.geteuid()} {path}",
        )
    if stat.S_IMODE(found.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
        os.chmod(path, 0o700)


def write_private(path: str, text: str) -> None:
    """Writes a file that only its owner may read; a crash leaves the old file or the new one."""
    temporary = f"{path}.new"
    # A leftover is never written into: it may be a link, or open in another's hands.
    with suppress(FileNotFoundError):
        os.unlink(temporary)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _lines(servers: str, settings: Mapping[str, str]) -> str:
    return "".join([f"{_SERVERS}{servers}\n", *(f"{name}={value}\n" for name, value in settings.items())])


def _escaped(text: str) -> str:
    """A value in a file that Java reads: Latin-1, with escapes."""
    units = text.replace("\\", "\\\\").encode("utf-16-be")
    codes = [int.from_bytes(units[index : index + 2], "big") for index in range(0, len(units), 2)]
    return "".join(chr(code) if 0x20 <= code < 0x7F else f"\\u{code:04x}" for code in codes)

"""Reads the keys of identity providers, from a file or over HTTPS, in threads of their own.

At the start a file of keys, and a file of authorities, have to be good. An address need not answer yet.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from cordwood.broker.machine.threads import Workers
from cordwood.client.transports import https
from cordwood.client.transports.contexts import TlsRefused, context_of
from cordwood.model.errors import BadKeys
from cordwood.model.token_trust import KeySource
from cordwood.security.connection_settings import ClientTls

if TYPE_CHECKING:
    from cordwood.security.key_sets import KeySet

_THREADS: Final = 2
"""A provider that does not answer keeps one thread busy for 10 s."""
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_AUTHORITIES: Final = "sasl.oauthbearer.jwks.endpoint.ssl.truststore.location"


class KeyReader:
    def __init__(self, loop: asyncio.AbstractEventLoop, run_in_node: Callable[[Callable[[], None]], object]) -> None:
        """`run_in_node` runs an event on the node, in the loop."""
        self._workers = Workers(loop, "token-keys", _THREADS)
        self._run_in_node = run_in_node

    def fetch(self, source: KeySource, done: Callable[[KeySet | Exception], None]) -> None:
        def finished(result: KeySet | Exception) -> None:
            self._run_in_node(lambda: done(result))

        self._workers.submit(lambda: read_keys(source), finished)

    def close(self) -> None:
        """Does not wait for a provider that does not answer."""
        self._workers.close(timeout_s=0)


def check_key_files(sources: Sequence[KeySource]) -> None:
    """Raises BadKeys if a file that the settings name cannot be used."""
    for source in sources:
        if source.path:
            read_keys(source)
        else:
            _trust(source)


def read_keys(source: KeySource) -> KeySet:
    """The keys of a source. Blocks for at most some seconds. Raises BadKeys."""
    # Imported where tokens are taken: the libraries behind it take a while to load.
    from cordwood.security.key_sets import BadKeySet, parse_key_set

    content = _from_file(source) if source.path else _from_server(source)
    try:
        return parse_key_set(content)
    except BadKeySet as reason:
        raise BadKeys(f"{_URL}={source.url} has no keys: {reason}") from None


def _from_file(source: KeySource) -> bytes:
    try:
        with open(source.path, "rb") as file:
            content = file.read(https.MOST_BYTES + 1)
    except OSError as error:
        raise BadKeys(f"{_URL}={source.url} cannot be read: {error.strerror}") from None
    if len(content) > https.MOST_BYTES:
        raise BadKeys(f"{_URL}={source.url} has more than {https.MOST_BYTES} bytes")
    return content


def _from_server(source: KeySource) -> bytes:
    try:
        answer = https.ask(source.url, _trust(source))
    except https.HttpsFailure as reason:
        raise BadKeys(f"{reason} ({_URL}; {_AUTHORITIES} names the authorities that are trusted)") from None
    if answer.status != 200:
        raise BadKeys(f"{_URL}={source.url} answered with the HTTP status {answer.status}, and redirects are not taken")
    return answer.content


def _trust(source: KeySource) -> ssl.SSLContext:
    try:
        return context_of(ClientTls(ca_location=source.authorities_file), source.url)
    except TlsRefused as reason:
        raise BadKeys(f"{_AUTHORITIES}={source.authorities_file} cannot be used: {reason}") from None

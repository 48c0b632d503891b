"""The tokens by which a client logs in: fetched from an OpenID provider, and kept while they are good.

Many connections of a process log in at about the same time: they share one token.
"""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from cordwood.client.errors import BrokerUnreachable, LogInFailure
from cordwood.client.transports import https
from cordwood.client.transports.contexts import TlsRefused, context_of
from cordwood.security.connection_settings import CLIENT_ID, CLIENT_SECRET, HTTPS_CA, TOKEN_URL, ClientTls, TokenSource

_MOST_KEPT: Final = 64
_GOOD_FOR: Final = 0.8
"""The part of its life in which a token is used for another log-in, as by Apache Kafka's clients."""
_MOST_BYTES: Final = 1 << 17


class _Kept(NamedTuple):
    token: str
    until_s: float


_kept: dict[TokenSource, _Kept] = {}
_lock = threading.Lock()


def token_of(source: TokenSource) -> str:
    """A token that is good for a while. Blocks for at most some seconds. Raises LogInFailure; BrokerUnreachable if
    the provider does not answer."""
    with _lock:
        kept = _kept.get(source)
        if kept is None or time.monotonic() >= kept.until_s:
            kept = _fetch(source)
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[source] = kept
        return kept.token


def _fetch(source: TokenSource) -> _Kept:
    began_s = time.monotonic()
    # RFC 6749, 2.3.1: both are form-encoded before they are joined.
    user = f"{quote(source.client_id, safe='')}:{quote(source.client_secret, safe='')}"
    form = {"grant_type": "client_credentials", **({"scope": source.scope} if source.scope else {})}
    headers = {"Authorization": f"Basic {b64encode(user.encode()).decode()}"}
    try:
        context = context_of(ClientTls(ca_location=source.ca_location), source.url)
        answer = https.ask(source.url, context, form=urlencode(form), headers=headers, most_bytes=_MOST_BYTES)
    except TlsRefused as reason:
        raise LogInFailure(f"{HTTPS_CA}={source.ca_location} cannot be used: {reason}") from None
    except https.HttpsFailure as reason:
        raise BrokerUnreachable(f"no token ({TOKEN_URL}): {reason}") from None
    try:
        told = json.loads(answer.content)
    except (ValueError, RecursionError):
        told = None
    fields = told if isinstance(told, dict) else {}
    if answer.status != 200:
        why = str(fields.get("error", ""))[:100]
        raise LogInFailure(
            f"{source.url} gave no token: HTTP status {answer.status} {why!r} ({CLIENT_ID} and {CLIENT_SECRET} have to "
            "be those of a client of the provider)"
        )
    token, lasts_s = fields.get("access_token"), fields.get("expires_in", 0)
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        raise LogInFailure(f"{source.url} gave no token: its answer has no access_token")
    good_for_s = lasts_s * _GOOD_FOR if isinstance(lasts_s, int | float) and lasts_s > 0 else 0.0
    return _Kept(token, began_s + good_for_s)

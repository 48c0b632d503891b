"""OAUTHBEARER (RFC 7628): one message with a token, and one more each way if the token is not taken.

Extensions beside the token are skipped, as by Apache Kafka's own validator.
"""

from __future__ import annotations

import re
from typing import Final

from cordwood.security.exchange import TokenClaim, Unproven

MOST_TOKEN_BYTES: Final = 32_768
"""A token with 256 groups has about 16 KiB."""

INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""The answer to every token that is not taken: strangers learn no reason."""

_SEPARATOR: Final = "\x01"
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_PAIR: Final = re.compile(r"[A-Za-z]+=[\t\r\n -~]*")


def parse_bearer(message: bytes) -> TokenClaim:
    """`n,a=authzid,SEP auth=Bearer TOKEN SEP NAME=VALUE SEP SEP`, with the byte 1 as SEP. Raises Unproven."""
    if len(message) > 2 * MOST_TOKEN_BYTES:
        raise Unproven(f"the message has {len(message)} bytes, more than {2 * MOST_TOKEN_BYTES}")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise Unproven("the message is not UTF-8") from None
    header, _, rest = text.partition(_SEPARATOR)
    flag, *more = header.split(",")
    if flag.startswith("p="):
        raise Unproven("channel binding is not offered here")
    if flag not in ("n", "y") or len(more) != 2 or more[1] or not (more[0] == "" or more[0].startswith("a=")):
        raise Unproven("the message does not begin with a header of RFC 7628")
    if not rest.endswith(2 * _SEPARATOR):
        raise Unproven("the message has no end as in RFC 7628")
    pairs = rest[:-2].split(_SEPARATOR)
    if not all(_PAIR.fullmatch(pair) for pair in pairs):
        raise Unproven("a part of the message is not NAME=VALUE")
    values = [pair.removeprefix("auth=") for pair in pairs if pair.startswith("auth=")]
    if len(values) != 1:
        raise Unproven(f"the message has {len(values)} tokens, not one")
    scheme, _, token = values[0].partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token.strip(" ")):
        raise Unproven("the message has no bearer token")
    if len(token) > MOST_TOKEN_BYTES:
        raise Unproven(f"the token has {len(token)} bytes, more than {MOST_TOKEN_BYTES}")
    return TokenClaim(token.strip(" "), more[0].removeprefix("a="))

"""PLAIN (RFC 4616): one message with the user's name and password. Apache Kafka's rules hold for it."""

from __future__ import annotations

from cordwood.security.exchange import PasswordClaim, Unproven


def parse_plain(token: bytes) -> PasswordClaim:
    """`authzid NUL user NUL password`; the authorization id is empty or the user. Raises Unproven."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        raise Unproven("the message is not UTF-8") from None
    if len(parts) != 3:
        raise Unproven(f"a message of PLAIN has three parts, not {len(parts)}")
    authzid, user, password = parts
    if not user:
        raise Unproven("the user name is empty")
    if not password:
        raise Unproven("the password is empty")
    if authzid not in ("", user):
        raise Unproven("the client requested an authorization id that is different from the user name")
    return PasswordClaim(user, password)

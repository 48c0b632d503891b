"""Whose tokens a listener takes: where the keys of their signatures are, and what their claims have to say."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote, urlsplit


class KeySource(NamedTuple):
    """The place of the keys by which an identity provider signs tokens."""

    url: str
    """`https:`, or `file:` with a path."""
    authorities_file: str
    """A PEM file; empty: the authorities of the system are trusted."""
    refresh_ms: int
    retry_ms: int
    retry_max_ms: int
    """A fetch that failed is tried again after a pause, which doubles from the one to the other."""

    @property
    def path(self) -> str:
        """The path of a file; empty for an address."""
        parts = urlsplit(self.url)
        return unquote(parts.path) if parts.scheme == "file" else ""


class TokenRules(NamedTuple):
    """The claims that a token has to have."""

    issuer: str
    """Empty: any."""
    audiences: tuple[str, ...]
    """The token is for one of these; none: for anybody."""
    user_claim: str
    groups_claim: str
    """Empty: tokens name no groups."""
    scope_claim: str
    skew_s: int
    """How much the clocks of the provider and of the broker may differ."""


class TokenTrust(NamedTuple):
    source: KeySource
    rules: TokenRules

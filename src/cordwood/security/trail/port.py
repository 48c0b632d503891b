"""The port of the security trail: what the node and the listeners tell it."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from cordwood.model.operations import Operation, ResourceKind
from cordwood.security.sessions import Session


class Changed(NamedTuple):
    """One resource that a request changed, or was to change."""

    operation: Operation
    kind: ResourceKind
    name: str
    error_code: int
    """As the client was told."""
    change: str = ""
    """The change in words, without secrets."""


class Trail(Protocol):
    """Takes note of an event and returns at once, whatever the state of the disk."""

    def changed(self, session: Session, api: str, changed: Changed) -> None:
        """A request has changed a resource, or failed to."""

    def refused(
        self, session: Session, api: str, operation: Operation, kind: ResourceKind, name: str, *, enforced: bool
    ) -> None:
        """The principal lacks a right. `enforced`: the request is refused; a dry run goes on."""

    def logged_in(self, session: Session) -> None:
        """The peer has proved who it is."""

    def not_logged_in(self, session: Session, mechanism: str, user: str, reason: str) -> None:
        """The peer has not proved who it is. `user`: its own claim, empty if it made none."""

    def handshake_failed(self, listener: str, host: str, reason: str) -> None:
        """A peer made no TLS connection."""

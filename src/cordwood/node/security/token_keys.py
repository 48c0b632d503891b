"""The keys of identity providers: when they are fetched, and who waits for them. The fetching itself is the driver's.

Keys are fetched at the start and every `refresh_ms`. A token with an unknown key id has them fetched, too, at most once
in UNKNOWN_KEY_PAUSE_MS for each source, however many strangers make up key ids; its connection waits for the answer.
A fetch that fails keeps the keys of before, says so, and is tried again after a pause that grows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.model.moment import Moment
from cordwood.model.token_trust import KeySource
from cordwood.node.loop.loop import Loop
from cordwood.node.loop.timers import Timer

if TYPE_CHECKING:
    from cordwood.security.key_sets import KeySet

logger = logging.getLogger("cordwood.node")

UNKNOWN_KEY_PAUSE_MS: Final = 60_000
FILE_REFRESH_MS: Final = 10_000
"""A file is read this often: its owner expects that a change is noticed soon."""
MOST_WAITING: Final = 1000
"""Connections that wait for the keys of one source. Tokens of further ones are refused."""


class FetchKeys(Protocol):
    def __call__(self, source: KeySource, done: Callable[[KeySet | Exception], None]) -> None:
        """Reads keys outside of the loop. Calls `done` in the loop, within a bounded time."""


class TokenKeys:
    def __init__(self, loop: Loop, sources: Iterable[KeySource]) -> None:
        self._sources = {source: _KeysOfSource(loop, source) for source in sources}

    def begin(self, fetch: FetchKeys) -> None:
        """Fetches all keys, now and again and again."""
        for each in self._sources.values():
            each.begin(fetch)

    def failures(self) -> list[tuple[str, int]]:
        """The fetches that failed since the last one that did not, by the address of the keys; of the settings for one
        address the most."""
        by_url: dict[str, int] = {}
        for source, each in self._sources.items():
            by_url[source.url] = max(by_url.get(source.url, 0), each.failures)
        return sorted(by_url.items())

    def of(self, source: KeySource) -> KeySet | None:
        """The keys that are known now; None before the first fetch."""
        return self._sources[source].keys

    def wait_for_newer(self, source: KeySource, than: KeySet | None, again: Callable[[], None]) -> bool:
        """True if other keys than these are there or on their way: `again` is called once, when they have come, or
        could not be fetched."""
        return self._sources[source].wait_for_newer(than, again)


class _KeysOfSource:
    def __init__(self, loop: Loop, source: KeySource) -> None:
        self.keys: KeySet | None = None
        self._loop = loop
        self._source = source
        self._fetch: FetchKeys | None = None
        self._is_fetching = False
        self._next: Timer | None = None
        self._asked_ms: int | None = None
        """The time of the last fetch for an unknown key id."""
        self.failures = 0
        """Fetches that failed since the last one that did not."""
        self._said = ""
        self._waiting: list[Callable[[], None]] = []

    def begin(self, fetch: FetchKeys) -> None:
        self._fetch = fetch
        self._start()

    def wait_for_newer(self, than: KeySet | None, again: Callable[[], None]) -> bool:
        if self.keys is not than:
            self._loop.after(0, lambda _: again())
            return True
        if self._fetch is None or len(self._waiting) >= MOST_WAITING:
            return False
        if not self._is_fetching:
            now_ms = self._loop.now.boot_ms
            if self._asked_ms is not None and now_ms < self._asked_ms + UNKNOWN_KEY_PAUSE_MS:
                return False
            self._asked_ms = now_ms
            self._start()
        self._waiting.append(again)
        return True

    def _start(self) -> None:
        assert self._fetch is not None
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self._is_fetching = True
        self._fetch(self._source, self._fetched)

    def _fetched(self, result: KeySet | Exception) -> None:
        self._is_fetching = False
        if isinstance(result, Exception):
            pause_ms = min(self._source.retry_ms << min(self.failures, 40), self._source.retry_max_ms)
            self.failures += 1
            self._say_failure(str(result))
        else:
            pause_ms = min(self._source.refresh_ms, FILE_REFRESH_MS if self._source.path else self._source.refresh_ms)
            self._take(result)
        self._next = self._loop.after(pause_ms, self._due)
        waiting, self._waiting = self._waiting, []
        for again in waiting:
            again()

    def _due(self, _: Moment) -> None:
        self._next = None
        self._start()

    def _take(self, keys: KeySet) -> None:
        if self.keys is None or keys.ids != self.keys.ids or self.failures:
            logger.info("tokens are verified with the keys %s of %s", keys.ids, self._source.url)
            for reason in keys.skipped:
                logger.warning("%s has a key that is not used: %s", self._source.url, reason)
        self.failures, self._said = 0, ""
        self.keys = keys

    def _say_failure(self, reason: str) -> None:
        """Logs a failure once, until it changes: it is repeated every few seconds."""
        if reason == self._said:
            return
        self._said = reason
        until = "no token is taken until they are" if self.keys is None else "those of before go on"
        logger.error(
            "the keys of tokens (sasl.oauthbearer.jwks.endpoint.url) could not be fetched, and %s: %s", until, reason
        )

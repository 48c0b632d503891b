"""Streams a range of offsets: the next request is on its way while the caller decodes the last answer.

Batches come in the partition's order. Offsets that compaction removed are no loss and no reason to wait, also at the
end of a range. Offsets that the log does not have yet are waited for, for `retry_timeout_ms`. Control batches and
batches of aborted transactions are passed on as they are.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from cordwood.client.answers import Fetched, Isolation
from cordwood.client.batch_walk import bytes_before, offset_after, whole_batches
from cordwood.client.brokers import Brokers
from cordwood.client.errors import BrokerUnreachable, ClientError, EndNotReached, RequestRefused
from cordwood.client.fetch_requests import FetchRequest, Wanted
from cordwood.client.fetching import Asked, Reader, fetch
from cordwood.client.retries import Attempts
from cordwood.model.identifiers import TopicPartition

_FIRST_GUESS_BYTES: Final = 1024
_LEAST_ASKED_BYTES: Final = 64 * 1024


class OffsetRange(NamedTuple):
    """The offsets [start_offset, end_offset) of a partition."""

    partition: TopicPartition
    start_offset: int
    end_offset: int


class _Appetite:
    """Chooses how many bytes to request. The end of a range may lie in the middle of a large partition, and bytes
    beyond it are thrown away, so a request near the end asks only for about the bytes that are left."""

    def __init__(self, end_offset: int, max_bytes: int) -> None:
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._bytes_per_offset = float(_FIRST_GUESS_BYTES)

    def learn(self, size: int, offsets: int) -> None:
        self._bytes_per_offset = size / offsets

    def at(self, position: int) -> int:
        left = (self._end_offset - position) * self._bytes_per_offset
        return min(self._max_bytes, max(_LEAST_ASKED_BYTES, int(left * 1.0625)))


class RangeStream:
    """An iterator over the batches of one range, in order; the first and the last batch may reach beyond the range."""

    def __init__(
        self, brokers: Brokers, wanted: OffsetRange, isolation: Isolation, max_bytes: int | None, read_ahead: int
    ) -> None:
        self._asked: Asked | None = None
        self._before_answer: Callable[[], None] | None = None
        self._brokers = brokers
        self._partition, self._position, self._end = wanted
        self._isolation = isolation
        self._read_ahead = read_ahead
        self._reader = Reader(brokers, self._partition, isolation)
        self._attempts = Attempts(brokers.settings)
        self._appetite = _Appetite(self._end, max_bytes or brokers.settings.fetch_max_bytes)

    def ask_ahead(self) -> None:
        """Sends the next request, unless one is on its way. The next round handles a failure."""
        if self._asked is None and self._position < self._end:
            with suppress(ClientError):
                self._asked = self._reader.ask(self._position, self._appetite.at(self._position))

    # Called by a convoy, which sends requests for several streams.

    @property
    def on_its_way_bytes(self) -> int:
        """The bytes that the unanswered request asks for; 0 without one."""
        return 0 if self._asked is None else self._asked.max_bytes

    def wanted(self) -> Wanted | None:
        """The next fetch; None if the range is done, a request is on its way, or no leader is known now."""
        if self._asked is None and self._position < self._end:
            with suppress(ClientError):
                return self._reader.wanted(self._position, self._appetite.at(self._position))
        return None

    def was_asked(self, request: FetchRequest, wanted: Wanted, *, shared: bool) -> None:
        """Notes that the convoy has sent the next request."""
        self._asked = Asked(request, wanted.offset, wanted.max_bytes, shared)

    def call_before_answers(self, call: Callable[[], None]) -> None:
        self._before_answer = call

    def close(self) -> None:
        """Ends the stream, and drops the answer that is on its way."""
        if self._asked is not None:
            self._asked.request.forget(self._partition)
            self._asked = None
        self._position = self._end

    def __del__(self) -> None:
        # Without `close` the connection would keep the answer for ever.
        self.close()

    def __iter__(self) -> "RangeStream":
        return self

    def __next__(self) -> Fetched:
        # The time that the caller spent on the last answer, or on other streams, does not count as retrying.
        self._attempts.progress()
        while self._position < self._end:
            fetched = self._next_answer()
            if fetched is None:
                continue
            self._attempts.progress()
            self._appetite.learn(len(fetched.records), fetched.next_offset - max(fetched.base, self._position))
            self._position = fetched.next_offset
            if self._position >= self._end:
                fetched = _cut(fetched, self._end)
                if not fetched.records:
                    break
            elif self._read_ahead:
                self.ask_ahead()
            if self._before_answer is not None:
                self._before_answer()
            return fetched
        raise StopIteration

    def _next_answer(self) -> Fetched | None:
        """The next answer with records; None if there was none and the caller should go on."""
        try:
            if self._asked is None:
                self._asked = self._reader.ask(self._position, self._appetite.at(self._position))
            asked, self._asked = self._asked, None
            fetched = self._reader.take(asked)
        except (BrokerUnreachable, RequestRefused) as failure:
            self._reader.recover(failure, self._position, self._attempts)
            return None
        if fetched.records or asked.shared:
            return fetched if fetched.records else None
        reached = fetched.last_stable_offset if self._isolation == Isolation.READ_COMMITTED else fetched.high_watermark
        if reached >= self._end and self._holds_nothing(reached):
            self._position = self._end
        else:
            self._attempts.pause(self._end_not_reached(fetched))
        return None

    def _holds_nothing(self, end: int) -> bool:
        """True if no batch is left from the position to `end`, the log's end for this reader: compaction removed the
        tail.

        A fetch without records is no proof, since a broker that throttles, or that waits for remote storage, also
        answers without records. In that case the last offset still has its batch, in the local part of the log.
        """
        for offset in (end - 1, self._position):
            found = fetch(
                self._brokers, self._partition, offset, max_bytes=None, max_wait_ms=None, isolation=self._isolation
            )
            if found.records:
                return False
        return True

    def _end_not_reached(self, fetched: Fetched) -> EndNotReached:
        if self._isolation == Isolation.READ_COMMITTED and fetched.last_stable_offset < self._end:
            reason = f"for readers of committed records it ends at offset {fetched.last_stable_offset}"
            if fetched.last_stable_offset < fetched.high_watermark:
                reason += ", where a transaction is open that has to be committed or aborted first"
        elif fetched.high_watermark < self._end:
            reason = f"it ends at offset {fetched.high_watermark} (high watermark)"
        else:
            reason = f"the broker has records up to offset {fetched.high_watermark} and does not send them"
        return EndNotReached(
            self._partition,
            self._position,
            self._end,
            fetched.high_watermark,
            f"{self._partition} was to be read up to offset {self._end} and could be up to {self._position}: {reason}",
        )


def _cut(fetched: Fetched, end_offset: int) -> Fetched:
    """Cuts away the batches that begin at or after this offset."""
    records = fetched.records[: bytes_before(fetched.records, end_offset)]
    if len(records) == len(fetched.records):
        return fetched
    next_offset = offset_after(records, whole_batches(records)[1]) if records else fetched.base
    return fetched._replace(records=records, next_offset=next_offset)

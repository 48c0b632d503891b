"""Reads many ranges one after the other: while one range is read, requests for the next ranges are on their way.

Small ranges of partitions with the same leader share a request. A hundred partitions with a few records each then cost
a few requests, and not a hundred round trips.
"""

from collections.abc import Sequence
from typing import Final
from weakref import ref

from cordwood.client.answers import Isolation
from cordwood.client.brokers import Brokers
from cordwood.client.errors import ClientError
from cordwood.client.fetch_requests import Wanted, send_fetch
from cordwood.client.link import Link
from cordwood.client.streaming import OffsetRange, RangeStream
from cordwood.model.identifiers import TopicPartition

_MAX_TOGETHER: Final = 256
"""The most ranges that are requested at once."""


def convoy(
    brokers: Brokers, ranges: Sequence[OffsetRange], isolation: Isolation, max_bytes: int | None
) -> list[RangeStream]:
    """A stream for each range, to be read in this order. A stream that fails or is left does not touch the others."""
    streams = [RangeStream(brokers, wanted, isolation, max_bytes, read_ahead=1) for wanted in ranges]
    if len(streams) > 1:
        _Convoy(brokers, streams, isolation, max_bytes or brokers.settings.fetch_max_bytes)
    return streams


class _Convoy:
    """Keeps requests under way for between half and all of the bytes that one answer may have."""

    def __init__(self, brokers: Brokers, streams: Sequence[RangeStream], isolation: Isolation, max_bytes: int) -> None:
        self._max_wait_ms = brokers.settings.fetch_max_wait_ms
        self._isolation = isolation
        self._max_bytes = max_bytes
        # Weak references, since the streams hold the convoy: streams without other owners forget their requests at
        # once.
        self._streams = [ref(stream) for stream in streams]
        self._asked_up_to = 0
        self._look_at = -1
        """Streams before this place need no look: enough bytes are on their way."""
        for place, stream in enumerate(streams):
            stream.call_before_answers(lambda place=place: self._read_up_to(place))  # type: ignore[misc]
        self._read_up_to(-1)

    def _read_up_to(self, place: int) -> None:
        """Requests more ranges if needed: the stream at `place` has an answer, earlier streams are done."""
        if place < self._look_at:
            return
        first = self._asked_up_to = max(self._asked_up_to, place + 1)
        asked = (stream() for stream in self._streams[max(place, 0) : first])
        on_their_way = sum(stream.on_its_way_bytes for stream in asked if stream is not None)
        if on_their_way > self._max_bytes // 2:
            return
        together: dict[Link, dict[TopicPartition, tuple[RangeStream, Wanted]]] = {}
        while self._asked_up_to < min(len(self._streams), place + 1 + _MAX_TOGETHER):
            stream = self._streams[self._asked_up_to]()
            wanted = None if stream is None else stream.wanted()
            if stream is not None and wanted is not None:
                of_leader = together.setdefault(wanted.leader.link, {})
                # A request names a partition once: two ranges of a partition need two requests.
                if wanted.partition in of_leader or (
                    on_their_way and on_their_way + wanted.max_bytes > self._max_bytes
                ):
                    break
                of_leader[wanted.partition] = stream, wanted
                on_their_way += wanted.max_bytes
            self._asked_up_to += 1
        self._look_at = place + (self._asked_up_to - place) // 2
        for of_leader in together.values():
            if of_leader:
                self._ask(list(of_leader.values()))

    def _ask(self, streams: Sequence[tuple[RangeStream, Wanted]]) -> None:
        try:
            request = send_fetch([wanted for _, wanted in streams], self._isolation, self._max_wait_ms)
        except ClientError:
            # Each stream sends its own request in its turn, and handles the failure.
            return
        for stream, wanted in streams:
            stream.was_asked(request, wanted, shared=len(streams) > 1)

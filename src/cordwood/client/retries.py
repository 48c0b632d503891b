"""Retries: how long a call goes on, and how long it pauses between two attempts."""

import random
import time

from cordwood.client.errors import BrokerUnreachable, ClientError, EndNotReached, RequestRefused
from cordwood.client.settings import ClientSettings
from cordwood.model.back_off import BackOff
from cordwood.model.errors import ErrorCode

LEADER_MOVED = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
    }
)
"""Errors of outdated metadata: the client fetches the metadata again, then retries."""

COORDINATOR_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Errors of a moved coordinator: the client looks the coordinator up, then retries."""

BUSY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that may pass in a moment, at the same broker."""

PASSING = LEADER_MOVED | COORDINATOR_MOVED | BUSY

_MARKERS_PAUSE_MS = 3


class Attempts:
    """The time of one call. `progress` restarts it, for calls that last as long as answers come."""

    def __init__(self, settings: ClientSettings, timeout_ms: int | None = None) -> None:
        self._timeout_s = (settings.retry_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        self._back_off = BackOff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
        self.progress()

    def progress(self) -> None:
        self._started_s = time.monotonic()
        self._deadline_s = self._started_s + self._timeout_s
        self._count = 0

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._deadline_s

    def pause(self, failure: ClientError) -> None:
        """Waits before the next attempt; raises the failure, with the number of attempts, if the time is up."""
        self._count += 1
        now_s = time.monotonic()
        left_s = self._deadline_s - now_s
        if left_s <= 0:
            raise self._final(failure, now_s - self._started_s) from failure
        back_off = self._back_off
        if isinstance(failure, RequestRefused) and failure.code == ErrorCode.CONCURRENT_TRANSACTIONS:
            # The markers of the last transaction are being written, which takes a moment.
            back_off = back_off._replace(first_ms=min(back_off.first_ms, _MARKERS_PAUSE_MS))
        pause_s = back_off.pause_ms(self._count) / 1000
        # Half of the pause is random, so that the tasks of a job that lost its broker do not all come back at once.
        time.sleep(min(left_s, pause_s * random.uniform(0.5, 1.0)))

    def _final(self, failure: ClientError, spent_s: float) -> ClientError:
        text = f"{failure}; given up after {self._count} attempts in {spent_s:.1f} s (retry_timeout_ms)"
        if isinstance(failure, RequestRefused):
            return RequestRefused(failure.code, text)
        if isinstance(failure, BrokerUnreachable):
            return BrokerUnreachable(text)
        if isinstance(failure, EndNotReached):
            return EndNotReached(failure.partition, failure.reached, failure.asked, failure.log_end_offset, text)
        return ClientError(text)

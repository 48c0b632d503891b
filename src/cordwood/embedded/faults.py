"""Errors, delays and lost connections on demand, for tests of clients: `broker.faults.fail("Produce", …)`.

A fault can be set from any thread, and holds for requests that arrive afterwards. A request meets at most one fault:
the first one set that fits it and is not used up.
"""

import threading
from collections.abc import Callable, Iterable
from enum import Enum
from types import TracebackType
from typing import Final, NamedTuple, Self

from cordwood.model.errors import ErrorCode
from cordwood.node.apis import SERVED
from cordwood.wire.requests import RequestHeader

NamedPartitions = Iterable[tuple[str | None, int | None]]

_CODES: Final = range(-1, 2**15)


class Effect(Enum):
    FAIL = "fail"
    """The request is not carried out. Its answer is an error."""
    DELAY = "delay"
    """The request is carried out. Its answer comes late."""
    DROP_REQUEST = "drop the request"
    """The request is not carried out, and the connection ends."""
    DROP_ANSWER = "drop the answer"
    """The request is carried out, and the connection ends instead of an answer."""


class Target(NamedTuple):
    """The requests that meet a fault."""

    api_key: int
    topic: str | None
    partition: int | None
    client_id: str | None

    def fits(self, header: RequestHeader, named: Callable[[], NamedPartitions]) -> bool:
        if header.api_key != self.api_key or self.client_id not in (None, header.client_id):
            return False
        if self.topic is None:
            return True
        return any(topic == self.topic and self.partition in (None, partition) for topic, partition in named())


class Fault:
    """A fault that was set. As a context manager it is removed at the end of the block."""

    def __init__(
        self,
        faults: "Faults",
        target: Target,
        effect: Effect,
        times: int | None,
        *,
        code: int = 0,
        delay_s: float = 0.0,
    ) -> None:
        self._faults = faults
        self.target = target
        self.effect = effect
        self.times = times
        self.code = code
        self.delay_s = delay_s
        self._hits = 0

    @property
    def hits(self) -> int:
        """The number of requests that have met this fault."""
        return self._hits

    @property
    def used_up(self) -> bool:
        return self.times is not None and self._hits >= self.times

    @property
    def needs_partitions(self) -> bool:
        """True if the fault, or the answer that it gives, depends on the partitions in a request."""
        return self.effect is Effect.FAIL or self.target.topic is not None

    def wait(self, hits: int = 1, timeout_s: float = 30.0) -> None:
        """Returns when `hits` requests have met this fault. Raises TimeoutError after `timeout_s`."""
        self._faults.wait_for(lambda: self._hits >= hits, timeout_s, f"{self} was met {self._hits} times, not {hits}")

    def hit(self) -> None:
        self._hits += 1

    def remove(self) -> None:
        """Removes the fault: no request meets it any more. Safe to call twice."""
        self._faults.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        of_times = "" if self.times is None else f" of {self.times}"
        return f"<Fault on {SERVED[self.target.api_key].name} ({self.effect.value}), met {self._hits}{of_times} times>"

    def __str__(self) -> str:
        return f"the fault on {SERVED[self.target.api_key].name} ({self.effect.value})"


class Faults:
    """The faults of one broker. Methods may be called from any thread but the broker's own, also while the broker is
    stopped. Every method that sets a fault takes:

    - `api`: the name of the API, such as `"Produce"`;
    - `times`: how many requests meet the fault; None means all, until the fault is removed;
    - `topic`, and optionally `partition`: only requests that name it. The whole request meets the fault, also for other
      topics in it;
    - `client_id`: only requests of clients with this `client.id`.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change from outside of the loop, and returns when the broker obeys the
        faults."""
        self._tell = changed
        self._set: list[Fault] = []
        self._changed = threading.Condition()

    def fail(
        self,
        api: str,
        error: str | int,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Refuses requests with an error, given by its protocol name (`"NOT_ENOUGH_REPLICAS"`) or its code.

        A refused request is not carried out, and every topic, partition or group in it gets the error. A Produce with
        acks=0 has no answer: its connection ends, as in Kafka.
        """
        target = _target(api, topic, partition, client_id)
        return self._add(Fault(self, target, Effect.FAIL, _checked(times), code=_code(error)))

    def delay(
        self,
        api: str,
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Carries requests out at once, and answers `seconds` later. Later answers on the same connection wait behind a
        late one, since answers leave in the order of requests."""
        _check_type("seconds", seconds, int, float)
        if not 0 <= seconds < float("inf"):
            raise ValueError(f"seconds must be 0 or more, and finite, not {seconds!r}")
        target = _target(api, topic, partition, client_id)
        return self._add(Fault(self, target, Effect.DELAY, _checked(times), delay_s=seconds))

    def disconnect(
        self,
        api: str,
        *,
        carried_out: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        partition: int | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Ends the connection instead of answering. With `carried_out` the request is carried out first, and only the
        answer is lost: a producer that sends it again writes a duplicate, unless it is idempotent."""
        effect = Effect.DROP_ANSWER if carried_out else Effect.DROP_REQUEST
        return self._add(Fault(self, _target(api, topic, partition, client_id), effect, _checked(times)))

    def clear(self) -> None:
        """Removes all faults."""
        with self._changed:
            self._set.clear()
        self._tell()

    def remove(self, fault: Fault) -> None:
        with self._changed:
            if fault not in self._set:
                return
            self._set.remove(fault)
        self._tell()

    def _add(self, fault: Fault) -> Fault:
        with self._changed:
            self._set.append(fault)
        self._tell()
        return fault

    def wait_for(self, condition: Callable[[], bool], timeout_s: float, otherwise: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, timeout_s):
                raise TimeoutError(f"{otherwise} within {timeout_s:g} s")

    # In the loop

    @property
    def any_set(self) -> bool:
        return bool(self._set)

    def on(self, api_key: int) -> list[Fault]:
        """The faults that are set on an API."""
        with self._changed:
            return [fault for fault in self._set if fault.target.api_key == api_key]

    def take(self, header: RequestHeader, named: Callable[[], NamedPartitions]) -> Fault | None:
        """The fault that this request meets, after counting the hit. A fault that is used up is removed."""
        with self._changed:
            for fault in self._set:
                if fault.target.fits(header, named):
                    fault.hit()
                    if fault.used_up:
                        self._set.remove(fault)
                    self._changed.notify_all()
                    return fault
        return None


def _target(api: str, topic: str | None, partition: int | None, client_id: str | None) -> Target:
    by_name = {api.name: key for key, api in SERVED.items()}
    if api not in by_name:
        raise ValueError(f"there is no API {api!r}{_near(str(api), by_name)}")
    _check_type("topic", topic, str, None)
    _check_type("partition", partition, int, None)
    _check_type("client_id", client_id, str, None)
    if partition is not None and topic is None:
        raise ValueError("partition needs topic: a partition belongs to a topic")
    if topic is not None:
        # Imported here, because it reads message schemas, which a broker without faults does not need.
        from cordwood.embedded.error_answers import names_topics

        if not names_topics(by_name[api]):
            raise ValueError(f"topic does not fit {api}: such requests name no topic")
    return Target(by_name[api], topic, partition, client_id)


def _code(error: str | int) -> int:
    if isinstance(error, str):
        if error not in ErrorCode.__members__:
            raise ValueError(f"there is no error {error!r}{_near(error, ErrorCode.__members__)}")
        error = ErrorCode[error]
    if error not in _CODES:
        raise ValueError(f"{error!r} is no error code")
    if error == ErrorCode.NONE:
        raise ValueError("NONE is no error: it would acknowledge a request that is not carried out")
    return int(error)


def _checked(times: int | None) -> int | None:
    _check_type("times", times, int, None)
    if times is not None and times < 1:
        raise ValueError(f"times must be at least 1, or None for always, not {times!r}")
    return times


def _check_type(name: str, given: object, *types: type | None) -> None:
    """Raises TypeError: a value of a wrong type fits no request, and a test would wait for a fault in vain."""
    # Python counts True as an int; here that is a mistake.
    fits = None in types if given is None else isinstance(given, tuple(each for each in types if each is not None))
    if not fits or isinstance(given, bool):
        expected = " or ".join("None" if each is None else each.__name__ for each in types)
        raise TypeError(f"{name} must be {expected}, not {type(given).__name__}")


def _near(name: str, names: Iterable[str]) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(name, names, n=1, cutoff=0.4)
    return f"; did you mean {nearest[0]}?" if nearest else ""

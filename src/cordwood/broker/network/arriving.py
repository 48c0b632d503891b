"""Memory for requests that are arriving: shares it among receivers, and cuts off slow ones while others wait.

A request within an ordinary buffer (`wire.framing.BUFFER_BYTES`) needs no permission: each connection always has such a
buffer. A larger request is promised its whole size before it grows beyond that buffer, so that no two half requests
wait for each other.

Peers that send most of a huge request and then drip would keep the memory. So

- requests of ordinary size (up to ORDINARY_BYTES: those of producers), larger and huge ones stand in lines of their
  own; each line has a part of the memory, which requests of larger sizes cannot take;
- one address gets a part of each line's memory, and addresses that wait take turns;
- while a receiver waits, a holder is cut off if its bytes come too slowly, or if it has had enough time for its size.

One request of each line is always let through, however large. The state machine has no clock.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, Protocol

ORDINARY_BYTES: Final = 2 * 1024 * 1024
LARGER_BYTES: Final = 16 * 1024 * 1024
SLOW_BYTES_PER_S: Final = 32 * 1024
"""A holder that receives less than this is slow."""
COUNTED_S: Final = 0.5
"""The bytes of a holder are counted over this time at least."""
LOOK_S: Final = 1.0
PRESSED_LOOK_S: Final = 0.25
"""The intervals of `look`: while no receiver waits, and while one does."""
GRACE_S: Final = 5.0
ARRIVAL_BYTES_PER_S: Final = 4 * 1024 * 1024
"""A request of n bytes has GRACE_S + n / ARRIVAL_BYTES_PER_S to arrive: 30 s for 100 MB."""


class Receiver(Protocol):
    """A connection whose request is arriving."""

    @property
    def client_host(self) -> str: ...

    @property
    def arrived_bytes(self) -> int:
        """The bytes of the unfinished request that have arrived."""

    @property
    def receiving(self) -> bool:
        """True if the broker reads from the connection."""

    def serve_on(self) -> None:
        """Asks again: there may be memory now."""

    def close(self, reason: str) -> None: ...


class _Claim:
    """The memory that one receiver holds or waits for."""

    __slots__ = ("address", "line", "receiver", "seen_bytes", "seen_s", "since_s", "size", "slow")

    def __init__(self, receiver: Receiver, size: int, line: "_Line") -> None:
        self.receiver = receiver
        self.address = receiver.client_host
        self.size = size
        self.line = line
        self.since_s = 0.0
        """The time at which the memory was promised."""
        self.seen_s = 0.0
        self.seen_bytes = 0
        """The bytes that had arrived at the last look, at `seen_s`."""
        self.slow = False

    def note(self, now_s: float) -> None:
        self.seen_s, self.seen_bytes = now_s, self.receiver.arrived_bytes

    def is_slow(self, now_s: float) -> bool:
        """True if too few bytes came since the last look."""
        gained = self.receiver.arrived_bytes - self.seen_bytes
        return self.receiver.receiving and gained < SLOW_BYTES_PER_S * (now_s - self.seen_s)

    def is_late(self, now_s: float) -> bool:
        return now_s - self.since_s > GRACE_S + self.size / ARRIVAL_BYTES_PER_S


class _Line:
    """Requests of one kind of size."""

    def __init__(self, own_bytes: int) -> None:
        self.own_bytes = own_bytes
        """The memory that no line of larger sizes takes. One request may be larger."""
        self.address_bytes = own_bytes // 2
        """The most bytes that one address may hold. One request may be larger."""
        self.holders = 0
        self.held_bytes = 0
        self.held_by: Counter[str] = Counter()
        self.waiting: dict[str, deque[_Claim]] = {}
        """Claims that wait, by address. The first address has the next turn."""

    def has_share(self, claim: _Claim) -> bool:
        """True if the claim is within its address's share."""
        held = self.held_by[claim.address]
        return not held or held + claim.size <= self.address_bytes

    def has_own(self, claim: _Claim) -> bool:
        """True if the claim is within the line's own memory."""
        return not self.holders or self.held_bytes + claim.size <= self.own_bytes

    @property
    def keeps_to_its_own(self) -> bool:
        return self.holders <= 1 or self.held_bytes <= self.own_bytes

    def hold(self, claim: _Claim, sign: int) -> None:
        self.holders += sign
        self.held_bytes += sign * claim.size
        self.held_by[claim.address] += sign * claim.size
        if not self.held_by[claim.address]:
            del self.held_by[claim.address]

    def leave(self, claim: _Claim) -> None:
        """Takes a claim out of the waiting ones."""
        waiting = self.waiting[claim.address]
        waiting.remove(claim)
        if not waiting:
            del self.waiting[claim.address]


class Arriving:
    def __init__(self, max_bytes: int) -> None:
        """`max_bytes`: the memory for all requests that are arriving."""
        self._max_bytes = max_bytes
        self._ordinary, self._larger, self._huge = lines = [_Line(max_bytes // part) for part in (4, 4, 2)]
        self._lines = lines
        self._claims: dict[Receiver, _Claim] = {}
        self._holders: dict[Receiver, _Claim] = {}
        self._due_s = 0.0
        """The time of the next look."""

    @property
    def held_bytes(self) -> int:
        return _held(self._lines)

    @property
    def waiting(self) -> int:
        """The number of receivers that wait for memory."""
        return len(self._claims) - len(self._holders)

    def holds(self, receiver: Receiver) -> bool:
        """True if the receiver was promised memory for the request that is arriving."""
        return receiver in self._holders

    def ask(self, receiver: Receiver, size: int, now_s: float) -> bool:
        """True if the receiver may receive a request of this size. If not, `serve_on` is called when it may."""
        if receiver in self._holders:
            return True
        if receiver in self._claims:
            return False
        line = self._ordinary if size <= ORDINARY_BYTES else self._larger if size <= LARGER_BYTES else self._huge
        claim = self._claims[receiver] = _Claim(receiver, size, line)
        line.waiting.setdefault(claim.address, deque()).append(claim)
        self._promise(now_s)
        if receiver not in self._holders:
            self._cut_slow(claim, now_s)
        return receiver in self._holders

    def end(self, receiver: Receiver, now_s: float) -> None:
        """Frees the memory: the request has arrived, or its connection is gone."""
        claim = self._claims.pop(receiver, None)
        if claim is None:
            return
        if self._holders.pop(receiver, None) is None:
            claim.line.leave(claim)
        else:
            claim.line.hold(claim, -1)
        self._promise(now_s)

    def look(self, now_s: float) -> float:
        """Looks at the progress of holders. While a receiver waits, slow and late holders are cut off. Returns the time
        until the next look."""
        # After a pause of the broker no holder counts as slow: it was the broker that did not receive.
        punctual = now_s <= self._due_s + PRESSED_LOOK_S
        for claim in list(self._holders.values()):
            if now_s - claim.seen_s >= COUNTED_S:
                claim.slow = punctual and claim.is_slow(now_s)
                claim.note(now_s)
            if self.waiting and (claim.slow or claim.is_late(now_s)):
                self._cut(claim, now_s)
        until_next_s = PRESSED_LOOK_S if self.waiting else LOOK_S
        self._due_s = now_s + until_next_s
        return until_next_s

    def _cut_slow(self, wanted: _Claim, now_s: float) -> None:
        """Cuts off holders that were slow at the last look, and still are, until there is room for a claim."""
        slow = [claim for claim in self._holders.values() if claim.slow and claim.is_slow(now_s)]
        for claim in sorted(slow, key=lambda each: (each.address != wanted.address, -each.size)):
            self._cut(claim, now_s)
            if wanted.receiver in self._holders:
                return

    def _cut(self, claim: _Claim, now_s: float) -> None:
        claim.receiver.close(
            f"its request of {claim.size} bytes arrives too slowly ({claim.receiver.arrived_bytes} bytes in "
            f"{now_s - claim.since_s:.0f} s) while others wait for memory"
        )
        self.end(claim.receiver, now_s)

    # The order of promises

    def _promise(self, now_s: float) -> None:
        """Gives memory to waiting receivers while there is some."""
        for line in self._lines:
            while (claim := self._next(line)) is not None:
                line.leave(claim)
                if (rest := line.waiting.pop(claim.address, None)) is not None:
                    line.waiting[claim.address] = rest
                line.hold(claim, 1)
                self._holders[claim.receiver] = claim
                claim.since_s = now_s
                claim.note(now_s)
                claim.receiver.serve_on()

    def _next(self, line: _Line) -> _Claim | None:
        """The claim that gets memory now. Only an address that has its share is passed over."""
        for waiting in line.waiting.values():
            claim = waiting[0]
            if line.has_share(claim):
                return claim if self._fits(claim) else None
        return None

    def _fits(self, claim: _Claim) -> bool:
        place = self._lines.index(claim.line)
        smaller, from_here, larger = self._lines[:place], self._lines[place:], self._lines[place + 1 :]
        fits_in_all = self.held_bytes + claim.size <= self._max_bytes
        if claim.line.has_own(claim):
            return fits_in_all or all(line.keeps_to_its_own for line in smaller)
        # Memory of lines of larger sizes, while no receiver waits there; never that of smaller sizes.
        fits_here = _held(from_here) + claim.size <= sum(line.own_bytes for line in from_here)
        return fits_in_all and fits_here and not any(line.waiting for line in larger)


def _held(lines: Iterable[_Line]) -> int:
    return sum(line.held_bytes for line in lines)

"""A second, dumb idea of what families promise: no slots, no epochs, no states, no log. It only answers whether."""

from dataclasses import dataclass, field


@dataclass
class Member:
    """Somebody who joined for a batch, and what it has written."""

    batch_id: int
    timeout_ms: int
    alive: bool = True
    written: list[str] = field(default_factory=list)


class Twin:
    def __init__(self) -> None:
        self.last_batch_id = -1
        self.members: list[Member] = []
        self.committed: dict[int, set[str]] = {}
        """What readers see in the end, by batch."""
        self._seen_ms: dict[int, int] = {}

    def join(self, batch_id: int, timeout_ms: int, now_ms: int) -> Member | None:
        """None: the batch is decided."""
        if batch_id <= self.last_batch_id:
            return None
        member = Member(batch_id, timeout_ms)
        self.members.append(member)
        self._seen_ms[batch_id] = now_ms
        return member

    def renew(self, batch_id: int, now_ms: int) -> None:
        if batch_id in self._seen_ms and batch_id > self.last_batch_id:
            self._seen_ms[batch_id] = now_ms

    def commit(self, batch_id: int, winners: list[Member]) -> str:
        if batch_id <= self.last_batch_id:
            self._end(batch_id)
            return "already decided"
        if not all(member.alive and member.batch_id == batch_id for member in winners):
            return "refused"
        self.last_batch_id = batch_id
        self.committed[batch_id] = {text for member in winners for text in member.written}
        self._end(batch_id)
        return "committed"

    def abort(self, batch_id: int, only: list[Member]) -> str:
        """Everybody, if nobody is named."""
        if batch_id <= self.last_batch_id:
            self._end(batch_id)
            return "already decided"
        for member in only or self.members:
            if member.batch_id <= batch_id:
                member.alive = False
        return "aborted"

    def look(self, now_ms: int) -> None:
        for member in self.members:
            if member.alive and self._seen_ms.setdefault(member.batch_id, now_ms) + member.timeout_ms <= now_ms:
                member.alive = False
        alive = {member.batch_id for member in self.members if member.alive}
        self._seen_ms = {batch_id: seen_ms for batch_id, seen_ms in self._seen_ms.items() if batch_id in alive}

    def restart(self) -> None:
        self._seen_ms = {}

    def _end(self, batch_id: int) -> None:
        for member in self.members:
            if member.batch_id <= batch_id:
                member.alive = False

    def visible(self) -> set[str]:
        return {text for texts in self.committed.values() for text in texts}

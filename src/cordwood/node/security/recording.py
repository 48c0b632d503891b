"""Records the changes of requests in the security trail: a change stands in the trail before its client is answered.

The handlers of changing APIs get a `RecordedRequest`, which looks at the answer on its way out. Without a trail
nothing is wrapped, and nothing costs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cordwood.model.operations import ResourceKind
from cordwood.node.requests.proven_brokers import is_proven
from cordwood.node.requests.request import Request, Served
from cordwood.node.security.changes import CHANGES, INTERRUPTED, TOLD_BY_HANDLERS, Changes
from cordwood.security.sessions import THIS_BROKER
from cordwood.security.trail.port import Changed, Trail
from cordwood.wire.apis import APIS
from cordwood.wire.requests import decode_request

if TYPE_CHECKING:
    from collections.abc import Generator

    from cordwood.cluster.metadata.image import ClusterImage
    from cordwood.node.loop.turns import Steps

NOTED_PER_STEP: Final = 200

_REFUSALS: Final = frozenset(kind.refusal for kind in ResourceKind)
"""Errors of refusals, which the judge tells the trail."""


class RecordedRequest(Request[Any]):
    """A request whose changes the trail hears of."""

    __slots__ = ("_body", "_changes", "_trail")

    def __init__(self, request: Request[Any], trail: Trail, changes: Changes) -> None:
        super().__init__(
            request.header, request.frame, request.reply, request.now, request._turns, request.judge, request.send
        )
        self._trail = trail
        self._changes = changes
        self._body: Any = None

    def decode(self) -> Any:
        self._body = decode_request(self.header, self.frame)
        return self._body

    def read(self) -> Generator[None, None, Any]:
        self._body = yield from super().read()
        return self._body

    def go_on(self, steps: Steps) -> None:
        super().go_on(self.watched(steps))

    def changed(self, changed: Changed) -> None:
        self._note(changed)

    def watched(self, steps: Steps) -> Steps:
        """Takes the steps, and notes what they may have changed if their connection is closed between two of them."""
        try:
            yield from steps
        except GeneratorExit:
            interrupted = INTERRUPTED.get(self.header.api_key)
            if interrupted is not None and self._body is not None:
                for changed in interrupted(self._body):
                    self._note(changed)
            raise

    def _answer(self, **values: Any) -> None:
        changes = self._changes(self._body, values)
        self._body = None
        if self._note_some(changes):
            super()._answer(**values)
        else:
            self._turns.add(self.reply, self._noting(changes, values))

    if not TYPE_CHECKING:
        answer = _answer

    def _noting(self, changes: Iterator[Changed], values: dict[str, Any]) -> Steps:
        try:
            while not self._note_some(changes):
                yield
        except GeneratorExit:
            for changed in changes:
                self._note(changed)
            raise
        yield from self._answering(values)

    def _note_some(self, changes: Iterator[Changed]) -> bool:
        """Notes some changes. True if these were the last."""
        count = 0
        for changed in islice(changes, NOTED_PER_STEP):
            count += 1
            self._note(changed)
        return count < NOTED_PER_STEP

    def _note(self, changed: Changed) -> None:
        if changed.error_code not in _REFUSALS:
            self._trail.changed(self.reply.session, APIS[self.header.api_key].name, changed)


def recorded(served: Mapping[int, Served], trail: Trail, image: ClusterImage) -> dict[int, Served]:
    """The handlers, with those of changing APIs recorded."""
    wrapped = dict(served)
    told: dict[int, Changes] = {**CHANGES}
    told.update((key, _told_by_the_handler) for key in TOLD_BY_HANDLERS)
    for key, changes in told.items():
        wrapped[key] = served[key]._replace(handle=partial(_handle, served[key], trail, image, changes))
    return wrapped


def _told_by_the_handler(_: Any, __: Any) -> Iterator[Changed]:
    return iter(())


def _handle(served: Served, trail: Trail, image: ClusterImage, changes: Changes, request: Request[Any]) -> Steps | None:
    if request.reply.session.principal is THIS_BROKER or is_proven(image, request.header):
        # A broker carries out what was asked for, and noted, elsewhere.
        return served.handle(request)
    watched = RecordedRequest(request, trail, changes)
    steps = served.handle(watched)
    return None if steps is None else watched.watched(steps)

"""Other brokers on the made-up network: the node's port `Peers` towards the networks of other simulated brokers.

Requests and answers travel as those of clients do: the world picks the moments of their arrival, and links between
brokers can be cut.
"""

from collections.abc import Callable
from typing import Protocol

from cordwood.broker.network.peers import Observer
from cordwood.model.moment import Moment
from cordwood.node.loop.peers import (
    Done,
    PeerAnswer,
    PeerFailed,
    PeerFailure,
    PeerOutcome,
    PeerRequest,
    common_version,
    unsupported,
)
from cordwood.wire.apis import ApiKey
from cordwood.wire.requests import Sender
from simulation.world.exchange import Connection, Exchange, Network

UNKNOWN = -1
NetworkOf = Callable[[int], Network | None]


class Timer(Protocol):
    def cancel(self) -> None: ...


class Later(Protocol):
    def __call__(self, delay_ms: int, event: Callable[[], None], /) -> Timer:
        """Runs an event of the node after a delay; 0: as soon as the present event is over."""


class SimulatedPeers:
    """The peers of one simulated broker, with one connection to each, and one for requests that wait long."""

    def __init__(
        self,
        broker_id: int,
        network_of: NetworkOf,
        served: Callable[[int], tuple[int, int] | None],
        later: Later,
        now: Callable[[], Moment],
        image_revision: Callable[[], int],
        key: Callable[[], int],
        reaches: Callable[[int], bool],
    ) -> None:
        """`network_of` gives the network of a registered broker; `served` the versions of an API that brokers serve;
        `image_revision` the revision of the metadata that this broker knows; `key` the key of its registration;
        `reaches` returns True if packets get to a broker's machine and back."""
        self._broker_id = broker_id
        self._network_of = network_of
        self._served = served
        self._later = later
        self._now = now
        self._image_revision = image_revision
        self._key = key
        self._reaches = reaches
        self._observer: Observer | None = None
        self._connections: dict[tuple[int, bool], Connection] = {}
        self._epochs: dict[tuple[int, bool], int] = {}
        """The registrations of the peers when this broker connected to them."""
        self.epoch_of: Callable[[int], int] = lambda broker_id: UNKNOWN
        """Gives the broker epoch of a registered broker, and UNKNOWN for any other."""

    def send(self, request: PeerRequest, done: Done) -> None:
        refused = self._refused(request)
        if refused is not None:
            self._later(0, lambda: done(refused, self._now()))
            return
        version = common_version(request.versions, self._served(request.api_key))
        assert version is not None
        connection = self._connection(request.broker_id, request.waits_long)
        timed_out = False

        def ended(exchange: Exchange) -> None:
            timer.cancel()
            outcome: PeerOutcome
            if exchange.answered:
                outcome = PeerAnswer(version, exchange.answer)
            elif timed_out:
                text = f"broker {request.broker_id}: no answer within {request.timeout_ms} ms"
                outcome = PeerFailed(PeerFailure.TIMED_OUT, text, perhaps_handled=True)
            else:
                text = f"broker {request.broker_id}: {exchange.state.value}"
                outcome = PeerFailed(PeerFailure.DISCONNECTED, text, perhaps_handled=True)
                if not connection.network.attached:
                    # The next attempt to connect is made at once.
                    self._report(request.broker_id, reached=False)
            self._later(0, lambda: done(outcome, self._now()))

        def give_up() -> None:
            nonlocal timed_out
            timed_out = True
            exchange.lose()
            connection.close()

        exchange = connection.request(
            ApiKey(request.api_key),
            version,
            request.values,
            ended,
            image_revision=self._image_revision(),
            sender=Sender(self._broker_id, self._key()),
        )
        timer = self._later(request.timeout_ms, give_up)

    def brokers_changed(self) -> None:
        """Drops connections to brokers whose registrations have ended."""
        for place, connection in list(self._connections.items()):
            epoch = self.epoch_of(place[0])
            # A peer that this broker did not know was connected to in its first registration.
            if self._epochs[place] not in (UNKNOWN, epoch):
                del self._connections[place]
                connection.close()
            self._epochs[place] = epoch

    def observe(self, observer: Observer) -> None:
        """Reports refused connections from now on, as the broker's peers do."""
        self._observer = observer

    def _report(self, broker_id: int, *, reached: bool) -> None:
        observer, epoch = self._observer, self.epoch_of(broker_id)
        if observer is not None and epoch != UNKNOWN and self._reaches(broker_id):
            report = observer.reached if reached else observer.refused
            self._later(0, lambda: report(broker_id, epoch))

    def close(self) -> None:
        """Closes all connections: the process is gone."""
        for connection in self._connections.values():
            connection.close()

    def _refused(self, request: PeerRequest) -> PeerFailed | None:
        network = self._network_of(request.broker_id)
        if network is None:
            text = f"broker {request.broker_id} is not registered"
            return PeerFailed(PeerFailure.UNKNOWN_BROKER, text)
        if not network.attached:
            self._report(request.broker_id, reached=False)
            return PeerFailed(PeerFailure.NO_CONNECTION, f"broker {request.broker_id} does not run")
        served = self._served(request.api_key)
        return unsupported(request, served) if common_version(request.versions, served) is None else None

    def _connection(self, broker_id: int, waits_long: bool) -> Connection:
        place = broker_id, waits_long
        connection = self._connections.get(place)
        if connection is None or not connection.open:
            network = self._network_of(broker_id)
            assert network is not None
            connection = self._connections[place] = network.connect(self._broker_id)
            self._report(broker_id, reached=True)
            self._epochs[place] = self.epoch_of(broker_id)
        return connection

"""The settings of each worker: addresses, its home, and its share of the resources of a single broker."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from cordwood.broker.workers.homes import home_of
from cordwood.model.failure import ExitCode, Failure
from cordwood.model.settings.broker_settings import BROKER_SETTINGS, BrokerSettings
from cordwood.model.settings.listeners import PLAINTEXT, ListenerAddress, brokers_apart, parse_address

CLUSTER_NAME = "workers"
MAX_PORT = 65_535

DIVIDED = (
    "queued.max.request.bytes",
    "tail.memory.max.bytes",
    "log.cleaner.dedupe.buffer.size",
    "log.scrub.bytes.per.second",
)
"""Settings whose value is for the machine: each worker gets its share."""

ONE_REPLICA = {
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "replication.factor.max": "1",
    "transaction.state.log.replication.factor": "1",
}
"""Workers share a disk: a second replica would cost space and protect from nothing."""


class Share(NamedTuple):
    """The settings of one worker at its start."""

    node_id: int
    listeners: tuple[ListenerAddress, ...]
    settings: dict[str, str]
    """The settings that differ from the user's, by name."""


Apart = Callable[[ListenerAddress, tuple[str, ...], int], dict[str, str]]
"""The settings that give workers a listener of their own: from the address of clients, the protocols, and a port."""


def shares(
    settings: BrokerSettings,
    directory: str,
    store: str,
    count: int,
    ports: list[int],
    apart: Apart = brokers_apart,
) -> list[Share]:
    """The share of each worker. `ports`: free ports, for listeners with port 0 and for those of brokers. With one
    listener clients can neither act as workers nor take their connections: workers have another one. Raises Failure if
    addresses would overlap."""
    free = iter(ports)
    found = []
    for place in range(count):
        node_id = settings.node_id + place
        addresses = tuple(_shifted(each.address, place, free) for each in settings.listener_list)
        texts = {
            **ONE_REPLICA,
            **_divided(settings, count),
            "cluster.name": CLUSTER_NAME,
            "cluster.store": store,
            "listeners": ",".join(map(str, addresses)),
            **(apart(addresses[0], settings.listener_security_protocol_map, next(free)) if len(addresses) == 1 else {}),
            "log.dirs": f"{directory}/{home_of(node_id)}",
            "node.id": str(node_id),
            "quota.shared.by": str(count),
        }
        if settings.advertised_listeners:
            own = {address.name: address.port for address in addresses}
            told = [parse_address(text) for text in settings.advertised_listeners]
            texts["advertised.listeners"] = ",".join(
                str(each._replace(port=each.port + place if each.port else own[each.name])) for each in told
            )
        if settings.metrics_address is not None:
            metrics = _shifted(settings.metrics_address, place, free)
            texts["metrics.listener"] = str(metrics).removeprefix(f"{PLAINTEXT}://")
        found.append(Share(node_id, addresses, texts))
    _check(found)
    return found


def ports_needed(settings: BrokerSettings, count: int) -> int:
    """The number of free ports that `shares` needs."""
    addresses = [each.address for each in settings.listener_list]
    if settings.metrics_address is not None:
        addresses.append(settings.metrics_address)
    of_brokers = len(settings.listener_list) == 1
    return count * (of_brokers + sum(not address.port for address in addresses))


def _shifted(address: ListenerAddress, place: int, free: Iterator[int]) -> ListenerAddress:
    return address._replace(port=address.port + place if address.port else next(free))


def _divided(settings: BrokerSettings, count: int) -> dict[str, str]:
    texts = {}
    for name in DIVIDED:
        setting = BROKER_SETTINGS[name]
        whole = getattr(settings, name.replace(".", "_"))
        least = settings.socket_request_max_bytes if name == "queued.max.request.bytes" else setting.low or 0
        # 0 switches the scrub off, and a share of 0 must not.
        texts[name] = str(max(whole // count, least, 1) if whole else 0)
    return texts


def _check(found: list[Share]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for share in found:
        metrics = share.settings.get("metrics.listener")
        addresses = [*share.listeners, *([parse_address(metrics)] if metrics else [])]
        for address in addresses:
            what = f"{address.name} of broker {share.node_id}"
            if address.port > MAX_PORT:
                raise Failure("USAGE", f"{what} would have port {address.port}", "give a lower port", ExitCode.USAGE)
            for host in (address.host, ""):
                other = taken.get((host, address.port))
                if other is not None:
                    raise Failure(
                        "USAGE",
                        f"{what} and {other} would both have port {address.port}: each worker listens on the ports of "
                        "the settings plus its place",
                        "leave room for all workers between the ports of listeners and metrics",
                        ExitCode.USAGE,
                    )
            taken[address.host, address.port] = what

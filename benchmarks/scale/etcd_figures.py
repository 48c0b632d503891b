"""What the members of etcd tell about themselves at /metrics."""

import re
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass

_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class EtcdFigures:
    """Sums over the members, except for the database, which every member has whole."""

    cpu_s: float
    rss_bytes: float
    sent_bytes: float
    """To clients."""
    received_bytes: float
    requests: float
    renewals: float
    database_bytes: float
    used_bytes: float
    """The part of the database that is in use."""
    keys: float
    watchers: float

    def since(self, before: "EtcdFigures") -> "EtcdFigures":
        """What was added; sizes and the numbers of keys and watchers are those of now."""
        return EtcdFigures(
            self.cpu_s - before.cpu_s,
            self.rss_bytes,
            self.sent_bytes - before.sent_bytes,
            self.received_bytes - before.received_bytes,
            self.requests - before.requests,
            self.renewals - before.renewals,
            self.database_bytes,
            self.used_bytes,
            self.keys,
            self.watchers,
        )


def read(endpoints: Sequence[str]) -> EtcdFigures:
    members = [_of(endpoint) for endpoint in endpoints]

    def total(name: str) -> float:
        return sum(member.get(name, 0.0) for member in members)

    def most(name: str) -> float:
        return max(member.get(name, 0.0) for member in members)

    return EtcdFigures(
        total("process_cpu_seconds_total"),
        total("process_resident_memory_bytes"),
        total("etcd_network_client_grpc_sent_bytes_total"),
        total("etcd_network_client_grpc_received_bytes_total"),
        total("grpc_server_started_total"),
        most("etcd_debugging_lease_renewed_total"),
        most("etcd_mvcc_db_total_size_in_bytes"),
        most("etcd_mvcc_db_total_size_in_use_in_bytes"),
        most("etcd_debugging_mvcc_keys_total"),
        total("etcd_debugging_mvcc_watcher_total"),
    )


def _of(endpoint: str) -> dict[str, float]:
    """The sum of the samples of each metric of a member, whatever their labels."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"http://{endpoint}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: dict[str, float] = {}
    for name, _, value in _SAMPLE.findall(text):
        found[name] = found.get(name, 0.0) + float(value)
    return found

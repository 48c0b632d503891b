"""A store on etcd that soon gives up, from some point of a test on: it was opened, and asked, with patience."""

from dataclasses import replace

from cordwood.cluster.stores.etcd import EtcdStore


def hurry(store: EtcdStore, deadline_ms: int) -> None:
    store._options = replace(store._options, deadline_ms=deadline_ms)

"""The metadata store of a cluster: etcd, over gRPC. Needs the packages of `cordwood[cluster]`."""

from cordwood.cluster.stores.etcd.options import EtcdOptions
from cordwood.cluster.stores.etcd.store import EtcdStore

__all__ = ["EtcdOptions", "EtcdStore"]

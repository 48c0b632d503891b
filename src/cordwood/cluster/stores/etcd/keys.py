"""Ranges of keys, as etcd names them."""


class KeyRange:
    """All keys of the cluster under a prefix: from `key` on, before `end`."""

    def __init__(self, cluster_prefix: str, prefix: str) -> None:
        self.key = (cluster_prefix + prefix).encode()
        self.end = self.key[:-1] + bytes([self.key[-1] + 1])

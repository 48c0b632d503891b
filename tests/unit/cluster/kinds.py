"""Which stores a test of the contract runs on: all of them, unless it says otherwise."""

import pytest

KINDS = ("memory", "sqlite", "socket", "etcd")

WITHOUT_ETCD = pytest.mark.parametrize("open_store", [kind for kind in KINDS if kind != "etcd"], indirect=True)
"""For what etcd does by settings and clocks of its own."""

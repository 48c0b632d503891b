"""The `cordwood` fixture: a fresh broker in memory for each test that asks for it.

One broker per test, not per session: it starts in tens of milliseconds, and tests that share no broker share no topics,
offsets or surprises. A suite that wants one for all its tests writes a session fixture around `Broker`. pytest imports
this module at every start of every suite on the machine, so it imports nothing else.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cordwood.embedded.broker import Broker


@pytest.fixture
def cordwood() -> "Iterator[Broker]":
    """A Kafka-compatible broker: `cordwood.bootstrap_servers` for clients, `cordwood.log` without a client."""
    from cordwood.embedded.broker import Broker

    with Broker() as broker:
        yield broker

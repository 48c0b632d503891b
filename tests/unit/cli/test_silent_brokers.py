"""A command that waits for brokers says which of them do not answer."""

from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.deadline import eventually

from cordwood.cli.terminal.silent_brokers import naming_silent_brokers, silent_brokers
from cordwood.client.bootstrap import Bootstrap


def test_a_broker_that_hangs_is_named_while_a_command_waits_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        assert silent_brokers(Bootstrap(broker.bootstrap), within_s=120) == []
        broker.freeze()
        with naming_silent_brokers(Bootstrap(broker.bootstrap), say_after_s=0.05):
            said = eventually(lambda: capsys.readouterr().err, what="the broker's address")
        broker.thaw()
    line = said.splitlines()[0]
    assert line.startswith(f"{broker.bootstrap} does not answer, ")
    assert line.endswith(" s so far …")


def test_all_addresses_that_were_given_are_asked() -> None:
    assert [str(each) for each in silent_brokers(Bootstrap("127.0.0.1:1,127.0.0.1:2"))] == [
        "127.0.0.1:1",
        "127.0.0.1:2",
    ]

"""A command that asks the brokers between two runs asks again while they are lost, with the pauses of a run, and gives
up in the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.broker_process import BrokerProcess

from cordwood.cli.pipeline.foreground import asked_again, telling
from cordwood.cli.pipeline.options import failure_of_brokers
from cordwood.cli.pipeline.target import Found, find
from cordwood.cli.terminal.doing import Doing
from cordwood.client.bootstrap import Bootstrap
from cordwood.client.errors import BrokerUnreachable, RequestRefused, SecurityFailure
from cordwood.model.back_off import BackOff
from cordwood.model.errors import ErrorCode
from cordwood.model.failure import ExitCode, Failure
from cordwood.pipelines.definition.errors import WrongState
from cordwood.pipelines.editions.editions import Edition
from cordwood.pipelines.editions.events import Event, last_failure
from cordwood.pipelines.execution.topics import existing_topics
from cordwood.pipelines.process.tries import Tries

FILE = """
from cordwood.pipelines import pipeline, topic

@pipeline(version=1, inputs=topic("orders"), outputs=topic("priced"))
def price(orders):
    return orders
"""
QUICK = BackOff(1, 2)


class Asked:
    """The edition of a pipeline for which a command asks."""

    def __init__(self, directory: Path) -> None:
        file = directory / "price.py"
        file.write_text(FILE)
        self.found: Found = find(str(file), str(directory / "project"))
        self.edition: Edition = self.found.state.begin(self.found.pipeline, starting="earliest", now_ms=1)
        self.told: list[dict[str, Any]] = []
        self._shown = telling(self.found, self.edition, Doing(), as_json=False)

    def tell(self, event: Event) -> None:
        self._shown(event)
        self.told.append(dict(event))

    @property
    def failure(self) -> str | None:
        """What `status` says."""
        found = last_failure(self.found.state, "v1")
        return None if found is None else str(found["message"])


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path / "data", keep_port=True)
    try:
        yield made
    finally:
        made.end()


def test_a_question_is_asked_again_until_the_broker_is_back(
    asked: Asked, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(event: Event) -> None:
        asked.tell(event)
        assert asked.failure == event["message"], "`status` says meanwhile why nothing goes on"
        if not broker.alive:
            broker.start()

    def question() -> set[str]:
        return existing_topics(Bootstrap(broker.address), timeout_s=1)

    tries = Tries(1_000, QUICK)
    assert asked_again(question, asked.found, asked.edition, tell, tries) == set()
    first = asked.told[0]
    assert (first["pipeline"], first["edition"], first["code"]) == ("price", "v1", "BROKER_NOT_REACHABLE")
    assert asked.failure is None
    line = capsys.readouterr().err.splitlines()[0]
    assert line.startswith("price v1 failed: the brokers were lost on the way: ")
    assert line.endswith("; again in 0.001 s")


def test_brokers_that_stay_away_end_the_command_after_the_failures_that_a_run_may_have(asked: Asked) -> None:
    def question() -> None:
        raise BrokerUnreachable("no broker of here:9092 answers")

    with pytest.raises(Failure) as caught:
        asked_again(question, asked.found, asked.edition, asked.tell, Tries(3, QUICK))
    assert caught.value.exit_code is ExitCode.NOT_REACHABLE
    assert caught.value.message == (
        "the brokers were lost on the way: no broker of here:9092 answers (given up after 3 restarts in a row)"
    )
    assert [event["again_in_s"] for event in asked.told] == [0.001, 0.002, 0.002]
    assert asked.failure == caught.value.message


@pytest.mark.parametrize(
    "error", [WrongState("it is refused"), SecurityFailure("not let in"), ZeroDivisionError()], ids=repr
)
def test_an_error_that_would_come_again_is_raised_at_once(asked: Asked, error: Exception) -> None:
    def question() -> None:
        raise error

    with pytest.raises(type(error)):
        asked_again(question, asked.found, asked.edition, asked.tell, Tries(3, QUICK))
    assert asked.told == []


LOST = [
    BrokerUnreachable("gone"),
    RequestRefused(ErrorCode.LEADER_NOT_AVAILABLE, "no leader"),
    KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer")),
    KafkaException(KafkaError(KafkaError.NOT_CONTROLLER, "elected anew")),
    RuntimeError("Job aborted: cordwood.client.errors.BrokerUnreachable: no broker answers\n\tat org.apache.spark"),
]
REFUSED = [
    RequestRefused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no right"),
    KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no right")),
]


@pytest.mark.parametrize("error", LOST + REFUSED, ids=repr)
def test_only_lost_brokers_may_answer_later(error: Exception) -> None:
    failure = failure_of_brokers(error)
    assert failure is not None
    assert (failure.exit_code is ExitCode.NOT_REACHABLE) is (error in LOST)

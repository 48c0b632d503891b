"""The open roll calls of the store (`cluster/roll_call.py`), and the brokers that have answered each."""

from collections.abc import Iterator

from cordwood.cluster.metadata.rows import roll_call_answer_key, roll_call_key


class RollCallTable:
    def __init__(self) -> None:
        self.answered: dict[str, set[int]] = {}
        """The brokers that have answered, by the name of the roll call."""

    def take(self, rest: str, value: bytes | None) -> None:
        """Takes a key without its prefix: a question, or an answer."""
        name, is_answer, broker_id = rest.partition("/")
        if not is_answer:
            if value is None:
                self.answered.pop(name, None)
            else:
                self.answered.setdefault(name, set())
        elif name in self.answered:
            (self.answered[name].discard if value is None else self.answered[name].add)(int(broker_id))

    def keys(self) -> Iterator[str]:
        for name, brokers in self.answered.items():
            yield roll_call_key(name)
            yield from (roll_call_answer_key(name, broker_id) for broker_id in brokers)

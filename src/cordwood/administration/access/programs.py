"""The rules that ordinary programs need, and no more of them: a producer, a consumer, Streams, Spark, a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from cordwood.model.acls import EVERYTHING, Acl, Pattern, Permission
from cordwood.model.families import FAMILY_PREFIX
from cordwood.model.operations import Operation, ResourceKind

_SPARK_GROUPS: Final = "spark-"
"""What the names of progress groups and of boxes of notes begin with; `groupIdPrefix` of Spark's source changes it."""
_NOTES: Final = f"{_SPARK_GROUPS}notes-"

Named = tuple[Pattern, str]


class Rules:
    """Collects the rules of one principal at one host."""

    def __init__(self, principal: str, host: str = EVERYTHING) -> None:
        self._principal = principal
        self._host = host
        self._found: dict[Acl, None] = {}

    def __iter__(self) -> Iterator[Acl]:
        return iter(self._found)

    def allow(self, kind: ResourceKind, named: Named, *operations: Operation) -> None:
        pattern, name = named
        for operation in operations:
            acl = Acl(kind, pattern, name, self._principal, self._host, operation, Permission.ALLOW)
            self._found[acl] = None

    def produce(self, topics: Iterable[Named], transactional_ids: Iterable[Named] = ()) -> None:
        """A producer that may create its topics. Idempotence needs no more, and transactions the transactional ids."""
        for topic in topics:
            self.allow(ResourceKind.TOPIC, topic, Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
        for each in transactional_ids:
            self.allow(ResourceKind.TRANSACTIONAL_ID, each, Operation.WRITE, Operation.DESCRIBE)

    def consume(self, topics: Iterable[Named], groups: Iterable[Named]) -> None:
        """A consumer in a group."""
        for topic in topics:
            self.allow(ResourceKind.TOPIC, topic, Operation.READ, Operation.DESCRIBE)
        for group in groups:
            self.allow(ResourceKind.GROUP, group, Operation.READ, Operation.DESCRIBE)

    def streams(self, application: str) -> None:
        """An application of Kafka Streams, exactly once, too: its group, and what begins with its id: its own topics,
        which it creates and empties, and the transactional ids of its threads."""
        own = (Pattern.PREFIXED, f"{application}-")
        self.allow(ResourceKind.TOPIC, own, Operation.ALL)
        self.allow(ResourceKind.TRANSACTIONAL_ID, own, Operation.WRITE, Operation.DESCRIBE)
        self.allow(ResourceKind.GROUP, (Pattern.LITERAL, application), Operation.READ, Operation.DESCRIBE)

    def spark(self, query: str) -> None:
        """A streaming query, by its queryName, whose sink has the query's name as its `family`. Its progress group; the
        boxes of notes, which all queries share; and the family with its slots."""
        self.allow(ResourceKind.GROUP, (Pattern.LITERAL, f"{_SPARK_GROUPS}{query}"), Operation.READ, Operation.DESCRIBE)
        self._notes()
        # The family is that name for numbered batches, and that name with the query's id behind it for a stream.
        family = f"{FAMILY_PREFIX}{query}"
        for named in ((Pattern.LITERAL, family), (Pattern.PREFIXED, f"{family}/"), (Pattern.PREFIXED, f"{family}.")):
            self.allow(ResourceKind.TRANSACTIONAL_ID, named, Operation.WRITE, Operation.DESCRIBE)

    def pipeline(self, name: str) -> None:
        """A pipeline with all its editions and its quarantine. Its families are named after ids that Spark gives to its
        queries at their first start, so the rule is for all families."""
        own = (Pattern.PREFIXED, f"{_SPARK_GROUPS}{name}.")
        self.allow(ResourceKind.GROUP, own, Operation.READ, Operation.DESCRIBE)
        self._notes()
        families = (Pattern.PREFIXED, FAMILY_PREFIX)
        self.allow(ResourceKind.TRANSACTIONAL_ID, families, Operation.WRITE, Operation.DESCRIBE)
        quarantine = (Pattern.LITERAL, f"{name}.quarantine")
        self.produce([quarantine])
        self.allow(ResourceKind.TOPIC, quarantine, Operation.READ)

    def pipeline_topics(self, reads: Iterable[Named], writes: Iterable[Named]) -> None:
        """The inputs, whose settings new topics are made like, and the outputs with those of other editions."""
        for topic in reads:
            self.allow(ResourceKind.TOPIC, topic, Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
        for pattern, name in writes:
            for named in ((pattern, name), (Pattern.PREFIXED, f"{name}.")):
                self.produce([named])
                self.allow(ResourceKind.TOPIC, named, Operation.READ, Operation.DESCRIBE_CONFIGS)

    def _notes(self) -> None:
        self.allow(ResourceKind.GROUP, (Pattern.PREFIXED, _NOTES), Operation.READ, Operation.DESCRIBE, Operation.DELETE)

"""Creates the topics that a pipeline writes before it begins, as an ordinary Kafka client.

A new output topic has as many partitions as the widest input, so that records are written and read on as parallel as
they were read, and as many copies as the best kept input. A topic that an edition writes beside the live one has the
partitions and settings of the topic that it will replace: the same key goes to the partition of the same number, and a
compacted topic stays compacted.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, NewTopic

from cordwood.client.bootstrap import Bootstrap
from cordwood.client.cluster import Cluster
from cordwood.client.retries import PASSING
from cordwood.pipelines.definition.definition import Pipeline
from cordwood.pipelines.definition.errors import NotFound, Refusal, WrongState
from cordwood.pipelines.definition.replication import UNSAID, Copies, Replication, copies_of_new
from cordwood.pipelines.editions import checkpoint
from cordwood.pipelines.editions.editions import Edition, PipelineState

T = TypeVar("T")

_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 5.0
"""How long brokers that do not answer are asked for topics: a person waits for the answer."""
_MIN_INSYNC: Final = "min.insync.replicas"
_QUARANTINE_SETTINGS: Final = {"retention.ms": "-1", "max.message.bytes": str(100 << 20)}
"""Quarantined records stay until somebody looks at them. Every record that was read must fit: one that came compressed
may be many times larger than its topic allows, and a record that does not fit would stop the pipeline for good."""


def existing_topics(bootstrap: Bootstrap, timeout_s: float = _LOOK_S) -> set[str]:
    """The topics that there are, as far as the client may know. Raises ClientError if no broker answers in time, and
    at once if the brokers or the client do not trust the other."""
    with _cluster(bootstrap, timeout_s) as cluster:
        return set(cluster.topics())


def _cluster(bootstrap: Bootstrap, timeout_s: float) -> Cluster:
    timeout_ms = max(1, round(timeout_s * 1000))
    return Cluster(bootstrap.settings(retry_timeout_ms=timeout_ms, request_timeout_ms=timeout_ms))


def check_inputs(bootstrap: Bootstrap, pipeline: Pipeline) -> None:
    """Raises NotFound for input topics that do not exist, before anything of the pipeline is made."""
    inputs = [topic.name for topic in pipeline.inputs.values()]
    with _cluster(bootstrap, _TIMEOUT_S) as cluster:
        there = cluster.topics(inputs)
    missing = [name for name in inputs if name not in there]
    if missing:
        many = len(missing) > 1
        raise NotFound(
            f"{pipeline.name} reads {', '.join(missing)}, and {bootstrap} has no such topic{'s' * many}",
            f"`cordwood topic create {missing[0]}` creates it; `cordwood topic list` shows what there is",
        )


class Written(NamedTuple):
    """A topic that a pipeline writes."""

    name: str
    replaces: str | None = None
    """The topic whose place it will take, whose partitions and settings it gets."""
    replication: Replication = UNSAID
    is_quarantine: bool = False


def ensure_topics(
    bootstrap: Bootstrap,
    topics: Sequence[Written],
    inputs: Sequence[str],
    remark: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Makes missing topics, and returns their names. `remark` is told of topics that are there and have fewer copies
    than a new one would get."""
    admin = _admin(bootstrap)
    there = admin.list_topics(timeout=_TIMEOUT_S).topics
    known = {*inputs, *(topic.replaces for topic in topics if topic.replaces is not None)} & there.keys()
    settings = _settings_of(admin, known)
    kept = {name: _copies(there[name], settings[name]) for name in known}
    of_inputs = [kept[name] for name in inputs if name in kept]
    partitions = max((len(there[name].partitions) for name in inputs if name in there), default=-1)
    missing: list[NewTopic] = []
    short: dict[str, int] = {}
    for topic in topics:
        replaces = topic.replaces if topic.replaces in known else None
        copies = copies_of_new(topic.name, topic.replication, of_inputs, None if replaces is None else kept[replaces])
        if topic.name not in there:
            likeness = None if replaces is None else (len(there[replaces].partitions), _own(settings[replaces]))
            missing.append(_new(topic, copies, likeness or (partitions, {})))
        elif _fewest_replicas(there[topic.name]) < copies.replicas:
            short[topic.name] = copies.replicas
    if short:
        remark(_short_in_words(short))
    _create(admin, missing)
    return [topic.topic for topic in missing]


def prepare_topics(
    pipeline: Pipeline,
    state: PipelineState,
    edition: Edition,
    bootstrap: Bootstrap,
    remark: Callable[[str], None] = lambda text: None,
) -> list[str]:
    """Makes missing topics, and returns their names. Topics of an edition that has not run yet must be empty, those
    of one that has must be there."""
    from cordwood.pipelines.execution.made_outputs import check_topics, note_own_topics
    from cordwood.pipelines.execution.reading_here import log_ends

    live = state.live_edition() if state.live() else None
    asked = pipeline.settings.replication
    written = []
    for topic in pipeline.topics.values():
        name = edition.topics[topic.name]
        replaces = None if live is None else live.topics.get(topic.name, topic.name)
        written.append(Written(name, replaces, topic.replication.within(asked)))
    own = [edition.topics[topic.name] for topic in pipeline.topics.values() if edition.topics[topic.name] != topic.name]
    # Spark notes a query's id before the edition does: a run that was killed between the two may have written.
    has_run = edition.query_id is not None or checkpoint.query_id(state.checkpoint(edition.name)) is not None
    if own and not has_run:
        used = sorted(topic for topic, ends in log_ends(bootstrap, own).items() if any(ends.values()))
        if used:
            # An edition of this name existed and was forgotten; its topics remain.
            raise WrongState(
                f"edition {edition.name} of {pipeline.name} is to be built from the beginning, and its topic {used[0]} "
                "has records already",
                f"`cordwood topic delete {used[0]}` removes them; --fresh builds an edition of another name",
            )
    if has_run:
        check_topics(pipeline, state, edition, bootstrap, remark)
    written.append(Written(pipeline.quarantine_topic, replication=asked, is_quarantine=True))
    made = ensure_topics(bootstrap, written, [topic.name for topic in pipeline.inputs.values()], remark)
    note_own_topics(state, edition, bootstrap)
    return made


def _admin(bootstrap: Bootstrap) -> AdminClient:
    """A client that is silent: librdkafka's own lines about brokers would stand between those of the command."""
    return AdminClient({**bootstrap.for_librdkafka(), "log_level": 0})


def _new(topic: Written, copies: Copies, likeness: tuple[int, dict[str, str]]) -> NewTopic:
    partitions, settings = (-1, dict(_QUARANTINE_SETTINGS)) if topic.is_quarantine else likeness
    if copies.is_own or _MIN_INSYNC in settings:
        settings[_MIN_INSYNC] = str(copies.min_insync)
    return NewTopic(topic.name, num_partitions=partitions, replication_factor=copies.replicas, config=settings)


def _create(admin: AdminClient, missing: list[NewTopic]) -> None:
    if not missing:
        return
    for name, answer in admin.create_topics(missing, operation_timeout=_TIMEOUT_S).items():
        try:
            _answered(answer)
        except KafkaException as error:
            if error.args[0].code() < 0 or error.args[0].code() in PASSING:
                raise  # brokers are lost, and a later try may find them
            if error.args[0].name() == "INVALID_REPLICATION_FACTOR":
                hint = (
                    "`cordwood cluster status` shows the brokers; replicas= of the topic or of @pipeline says how many"
                )
                raise Refusal(f"the topic {name} cannot be made: {error.args[0].str()}", hint) from error
            if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise Refusal(f"the topic {name} cannot be made: {error.args[0].str()}") from error
    _await(admin, [topic.topic for topic in missing])


def _short_in_words(short: Mapping[str, int]) -> str:
    first, *others = sorted(short)
    also = f" (and so for {', '.join(others)})" if others else ""
    return (
        f"{', '.join(sorted(short))}: fewer replicas than what the pipeline reads, so the loss of one broker may stop "
        f"the pipeline. `cordwood cluster reassign {first} --replication-factor {short[first]}` adds them{also}"
    )


def _fewest_replicas(topic: Any) -> int:
    return min((len(each.replicas) for each in topic.partitions.values()), default=0)


def _copies(topic: Any, settings: Mapping[str, Any]) -> Copies:
    """While a replica moves, a partition has more of them; one too many does no harm to a new topic."""
    replicas = max((len(each.replicas) for each in topic.partitions.values()), default=1)
    entry = settings.get(_MIN_INSYNC)
    told = None if entry is None else entry.value
    return Copies(replicas, 1 if told is None else int(told), entry is not None and _is_own(entry))


def _settings_of(admin: AdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The settings of topics, by topic and name."""
    resources = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in sorted(topics)]
    if not resources:
        return {}
    found: Mapping[ConfigResource, Future[Mapping[str, Any]]] = admin.describe_configs(resources)
    return {resource.name: _answered(found[resource]) for resource in resources}


def _answered(answer: "Future[T]") -> T:
    """The answer to a request. Raises KafkaException, also where there is none in time."""
    try:
        return answer.result(_TIMEOUT_S)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"no answer within {_TIMEOUT_S:g} s")) from None


def _own(settings: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a topic that are not defaults."""
    return {name: entry.value for name, entry in settings.items() if _is_own(entry) and entry.value is not None}


def _is_own(entry: Any) -> bool:
    return bool(entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value)


def _await(admin: AdminClient, names: list[str]) -> None:
    """Waits until new topics are known: on a cluster that takes a moment."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        there = admin.list_topics(timeout=_TIMEOUT_S).topics
        if all(name in there and there[name].error is None for name in names):
            return
        time.sleep(0.05)

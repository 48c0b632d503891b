"""The leader's in-sync set beside a store that takes its time: whoever may be elected is always counted."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.replication.in_sync import InSyncSet, Version

ME = 1
sets = st.sampled_from([frozenset(members) for members in ({1}, {1, 2}, {1, 3}, {1, 2, 3})])
events = st.one_of(
    st.tuples(st.just("ask"), sets),
    st.tuples(st.just("deliver"), st.integers(0, 3)),
    st.tuples(st.just("answer"), st.none()),
    st.tuples(st.just("time out"), st.none()),
    st.tuples(st.just("show"), st.none()),
    st.tuples(st.just("controller drops"), st.sampled_from([2, 3])),
)


@dataclass
class Request:
    version: Version
    isr: frozenset[int]
    applied: bool | None = None
    """None: the request has not reached the store."""


@dataclass
class Store:
    """The row of one partition, and requests that may reach it in any order and at any time."""

    isr: frozenset[int] = frozenset({1, 2, 3})
    version: Version = field(default_factory=lambda: Version(0, 1))
    travelling: list[Request] = field(default_factory=list)

    def write(self, isr: frozenset[int]) -> None:
        self.isr = isr
        self.version = Version(self.version.partition_epoch + 1, self.version.mod_revision + 1)

    def deliver(self, request: Request) -> None:
        self.travelling.remove(request)
        request.applied = request.version == self.version
        if request.applied:
            self.write(request.isr)


@settings(max_examples=400, deadline=None)
@given(st.lists(events, max_size=30))
def test_every_member_of_the_stored_set_counts_whatever_the_store_says(script: list[tuple[str, object]]) -> None:
    store = Store()
    leader = InSyncSet(store.isr, (), store.version)
    asked: Request | None = None
    for event, value in script:
        match event, value:
            case "ask", frozenset() as isr:
                if leader.may_ask:
                    leader.asked(isr)
                    asked = Request(leader.version, isr)
                    store.travelling.append(asked)
            case "deliver", int(place):
                if store.travelling:
                    store.deliver(store.travelling[place % len(store.travelling)])
            case "answer", _:
                if asked is not None and asked.applied is not None:
                    (leader.applied if asked.applied else leader.refused)(asked.version)
                    asked = None
            case "time out", _:
                if asked is not None:
                    leader.unknown(asked.version)
                    asked = None
            case "show", _:
                leader.image_shows(store.isr, (), store.version)
            case "controller drops", int(member):
                if member in store.isr:
                    store.write(store.isr - {member})
        assert store.isr <= leader.maximal, (event, value, store, leader.committed, leader.change)


def test_a_refusal_after_an_unknown_outcome_settles_nothing() -> None:
    leader = InSyncSet({1, 2}, (), Version(0, 1))
    leader.asked(frozenset({1, 2, 3}))
    leader.unknown(leader.version)
    leader.asked(frozenset({1, 2}))
    leader.refused(leader.version)
    assert leader.change.name == "UNCERTAIN"
    assert leader.maximal == {1, 2, 3}
    leader.image_shows({1, 2, 3}, (), Version(1, 2))
    assert leader.change.name == "NONE"
    assert leader.maximal == {1, 2, 3}


def test_an_outcome_that_comes_after_the_image_is_ignored() -> None:
    leader = InSyncSet({1, 2}, (), Version(0, 1))
    leader.asked(frozenset({1}))
    leader.image_shows({1}, (), Version(1, 2))
    leader.applied(Version(0, 1))
    assert leader.change.name == "NONE"
    assert leader.maximal == {1}

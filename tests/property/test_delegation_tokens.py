"""Delegation tokens under any schedule: who is served by a token, against a plain account of when each one ends."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.seeds import examples
from tests.unit.node.speaking import error
from tests.unit.node.test_delegation_tokens import LIFE_MS, LONGEST_MS, Peer, holder, is_refused, logged_in, short_lives

from cordwood.model.delegation_tokens import DelegationToken, Lifetimes

periods = st.integers(-2, 3 * LIFE_MS)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.integers(-1, 2 * LONGEST_MS)),
        st.tuples(st.just("renew"), periods),
        st.tuples(st.just("expire"), periods),
        st.tuples(st.just("log in"), st.just(0)),
        st.tuples(st.just("pass"), st.integers(1, LIFE_MS)),
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(actions)
def test_a_token_is_good_exactly_until_its_end_whatever_happens_to_it(schedule: list[tuple[str, int]]) -> None:
    world = short_lives()
    owner = logged_in(world)
    token = owner.create()
    secret, over_ms, end_ms = bytes(token.hmac), token.expiry_timestamp_ms, token.max_timestamp_ms
    holders: list[Peer] = []
    for action, amount in schedule:
        now_ms = world.clock.wall_ms
        is_good = now_ms < over_ms
        match action:
            case "create":
                # Another token changes nothing about this one.
                owner.create(max_lifetime_ms=amount)
            case "renew":
                answer = owner.renew(secret, amount)
                assert (answer.error_code == 0) == is_good
                if is_good:
                    over_ms = min(end_ms, now_ms + (min(amount, LIFE_MS) if amount > 0 else LIFE_MS))
                    assert answer.expiry_timestamp_ms == over_ms
            case "expire":
                answer = owner.expire(secret, amount)
                if amount >= 0:
                    assert (answer.error_code == 0) == is_good
                if answer.error_code == 0:
                    over_ms = now_ms if amount < 0 else min(end_ms, now_ms + amount)
            case "log in":
                if is_good:
                    holders.append(holder(world, token))
                else:
                    assert is_refused(world, token.token_id, secret)
            case _:
                world.advance(amount)
        is_good = world.clock.wall_ms < over_ms
        for each in holders:
            if each.connection.open:
                assert each.is_served == is_good, f"after {action} {amount}"
            else:
                assert not is_good or not each.connection.open
        holders = [each for each in holders if each.connection.open]
        assert error(owner.renew(b"no secret").error_code) == "DELEGATION_TOKEN_NOT_FOUND"
    world.kill()


times = st.integers(0, 10**15)
spans = st.integers(1, 10**12)


@settings(max_examples=examples(300), deadline=None)
@given(spans, spans, times, st.integers(-(2**63), 2**63 - 1), st.lists(st.tuples(spans, st.integers(-1, 2**63 - 1))))
def test_no_renewal_outlives_the_end_of_a_token(
    longest_ms: int, renewal_ms: int, issued_ms: int, wanted_ms: int, renewals: list[tuple[int, int]]
) -> None:
    lifetimes = Lifetimes(longest_ms, renewal_ms)
    expires_ms, ends_ms = lifetimes.bounds_of(issued_ms, wanted_ms)
    token = DelegationToken("id", "User:a", "User:a", (), issued_ms, expires_ms, ends_ms)
    assert issued_ms < token.expires_ms <= token.ends_ms <= issued_ms + longest_ms
    now_ms = issued_ms
    for passed_ms, period_ms in renewals:
        now_ms += passed_ms
        if token.is_over(now_ms):
            break
        for after in (token.renewed(now_ms, period_ms, lifetimes), token.ending(now_ms, max(period_ms, 0))):
            assert now_ms <= after.expires_ms <= after.ends_ms == ends_ms
        token = token.renewed(now_ms, period_ms, lifetimes)
        assert token.expires_ms <= now_ms + renewal_ms

"""The highest version that both sides speak and mean."""

import pytest

from cordwood.client.errors import VersionMismatch
from cordwood.client.versions import WRITTEN_FOR, BrokerVersions
from cordwood.wire.apis import APIS, ApiKey


def broker_with(**ranges: tuple[int, int]) -> BrokerVersions:
    return BrokerVersions("broker 7 (a:1)", {key: ranges[key.name] for key in ApiKey if key.name in ranges})


def test_the_highest_common_version_is_picked() -> None:
    assert broker_with(FETCH=(4, 11)).pick(ApiKey.FETCH) == 11
    assert broker_with(FETCH=(4, 99)).pick(ApiKey.FETCH) == 18
    assert broker_with(FETCH=(4, 99)).pick(ApiKey.FETCH, at_most=12) == 12


def test_versions_that_mean_something_else_are_left_alone() -> None:
    assert broker_with(OFFSET_COMMIT=(2, 10)).pick(ApiKey.OFFSET_COMMIT) == 9
    assert broker_with(TXN_OFFSET_COMMIT=(0, 6)).pick(ApiKey.TXN_OFFSET_COMMIT) == 5


def test_every_version_that_is_meant_has_a_codec() -> None:
    for api_key, last in WRITTEN_FOR.items():
        assert APIS[api_key].min_version <= last <= APIS[api_key].max_version


@pytest.mark.parametrize(
    ("broker", "at_most", "says"),
    [
        (broker_with(), None, r"broker 7 \(a:1\) does not have it: Fetch"),
        (broker_with(FETCH=(0, 3)), None, "has versions 0 to 3: Fetch, of which this client speaks 4 to 18"),
        (broker_with(FETCH=(14, 18)), 12, "has versions 14 to 18: Fetch, of which this client speaks 4 to 12"),
    ],
)
def test_no_common_version_is_told_with_both_ranges(broker: BrokerVersions, at_most: int | None, says: str) -> None:
    with pytest.raises(VersionMismatch, match=says):
        broker.pick(ApiKey.FETCH, at_most)


def test_what_is_supported() -> None:
    broker = broker_with(PRODUCE=(0, 13), FETCH=(0, 3))
    assert broker.supports(ApiKey.PRODUCE)
    assert not broker.supports(ApiKey.FETCH)
    assert not broker.supports(ApiKey.FAMILY_JOIN)
    assert not broker.supports(4711)

"""What only the store on etcd shows: versions, terms, prefixes, pages, users."""

import asyncio
import shutil
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from tests.deadline import eventually
from tests.etcd.members import Certificate, EtcdCluster
from tests.etcd.scripted_member import scripted_member
from tests.unit.cluster.hurrying import hurry

from cordwood.cluster.stores.etcd import EtcdOptions, EtcdStore
from cordwood.cluster.stores.etcd.versions import refusal
from cordwood.cluster.stores.interface import (
    Compacted,
    Put,
    StoreClosed,
    StoreFailure,
    StoreUnavailable,
    StoreWentBack,
)

StartEtcd = Callable[..., AbstractContextManager[EtcdCluster]]


@asynccontextmanager
async def opened(*endpoints: str, cluster: str = "", **options: Any) -> AsyncIterator[EtcdStore]:
    store = await EtcdStore.open(EtcdOptions(endpoints, cluster or uuid.uuid4().hex, **options))
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("version", "with_auth", "refused"),
    [
        ("3.5.28", False, False),
        ("3.5.27", False, True),
        ("3.5.28-rc.0", False, True),
        ("3.6.9", False, False),
        ("3.6.8", False, True),
        ("3.7.0", False, False),
        ("3.7.0", True, True),
        ("3.7.1", True, False),
        ("3.5.32", True, True),
        ("3.4.39", False, True),
        ("4.0.0", True, False),
        ("unknown", False, True),
    ],
)
def test_a_version_with_known_faults_is_refused(version: str, with_auth: bool, refused: bool) -> None:
    assert (refusal(version, with_auth=with_auth) is not None) is refused


async def test_an_etcd_that_is_too_old_is_refused_with_words_and_at_once() -> None:
    async with scripted_member(version="3.5.27") as member:
        options = EtcdOptions((member.endpoint,), "woods", deadline_ms=3_600_000)
        with pytest.raises(StoreFailure, match=r"etcd 3\.5\.27 has known faults .* 3\.5\.28 or 3\.6\.9 or later"):
            await EtcdStore.open(options)
        async with opened(member.endpoint, allow_old=True) as store:
            assert await store.get("a") is None


async def test_an_old_member_among_others_is_not_used() -> None:
    async with scripted_member(version="3.5.27") as old, scripted_member() as other:
        for _ in range(5):
            async with opened(old.endpoint, other.endpoint) as store:
                assert store.member == other.endpoint


async def test_a_member_of_another_etcd_is_not_used() -> None:
    async with (
        scripted_member() as one,
        scripted_member(cluster_id=8) as two,
        opened(one.endpoint, two.endpoint, deadline_ms=60_000) as store,
    ):
        used = one if store.member == one.endpoint else two
        used.gone = True
        hurry(store, 1_000)
        with pytest.raises(StoreUnavailable, match="belongs to another etcd"):
            await store.get("a")


async def test_a_member_whose_raft_term_went_back_is_left() -> None:
    async with (
        scripted_member() as one,
        scripted_member() as two,
        opened(one.endpoint, two.endpoint, deadline_ms=60_000) as store,
    ):
        await store.get("a")
        used, other = (one, two) if store.member == one.endpoint else (two, one)
        used.raft_term, used.cut_off = 4, True
        await store.get("a")
        assert store.member == other.endpoint


async def test_an_etcd_that_was_restored_at_a_later_revision_is_left_to_the_judgement_of_followers() -> None:
    async with scripted_member() as member, opened(member.endpoint, deadline_ms=60_000) as store:
        await store.get("a")
        member.raft_term, member.revision = 2, 1_000_000_010
        assert (await store.list("")).revision == member.revision


async def test_an_etcd_that_was_restored_from_an_older_copy_is_refused(start_etcd: StartEtcd) -> None:
    with start_etcd() as cluster:
        (member,) = cluster.members
        async with opened(*cluster.endpoints, deadline_ms=60_000) as store:
            for number in range(3):
                # Every start is a later term.
                member.kill()
                await asyncio.to_thread(cluster.restart, member)
                await store.txn((), [Put("a", b"%d" % number)])
            member.kill()
            shutil.rmtree(member.data)
            await asyncio.to_thread(cluster.restart, member)
            with pytest.raises(StoreWentBack, match="restored from an older copy"):
                await store.get("a")


async def test_clusters_of_other_names_are_not_seen(one_etcd: EtcdCluster) -> None:
    name = uuid.uuid4().hex
    async with (
        opened(*one_etcd.endpoints, cluster=name) as store,
        opened(*one_etcd.endpoints, cluster=f"{name}0") as other,
        opened(*one_etcd.endpoints, cluster=f"{name}-") as third,
    ):
        await other.txn((), [Put("a", b"other")])
        first = (await store.txn((), [Put("a", b"")])).revision
        await third.txn((), [Put("a", b"third")])
        last = (await store.txn((), [Put("b", b"")])).revision
        assert [item.key for item in (await store.list("")).items] == ["a", "b"]
        key = b64encode(f"/cordwood/{name}/b".encode()).decode()
        assert one_etcd.members[0].post("/v3/kv/range", {"key": key})["count"] == "1"
        watch = store.watch("", first)
        seen: list[int] = []
        while len(seen) < 2:
            seen += [event.mod_revision for event in (await anext(watch)).events]
        assert seen == [first, last]


@pytest.mark.parametrize("name", ["", "a/b", "a b", "ü"])
async def test_a_name_that_is_no_part_of_a_key_is_refused(name: str) -> None:
    with pytest.raises(StoreFailure, match="no name for a cluster"):
        await EtcdStore.connect(["127.0.0.1:1"], name)


async def test_a_listing_of_many_pages_is_of_one_revision(one_etcd: EtcdCluster) -> None:
    async with opened(*one_etcd.endpoints) as store:
        keys = [f"{number:05}" for number in range(4_500)]
        for start in range(0, len(keys), 125):
            await store.txn((), [Put(key, b"") for key in keys[start : start + 125]])
        listing, _ = await asyncio.gather(store.list(""), store.txn((), [Put(keys[-1], b"meanwhile")]))
        assert [item.key for item in listing.items] == keys
        assert (await store.list("", listing.revision)).items == listing.items
        await store.compact((await store.txn((), [Put(keys[-1], b"later")])).revision)
        with pytest.raises(Compacted):
            await store.list("", listing.revision)


async def test_closing_finishes_transactions_that_were_asked_for(one_etcd: EtcdCluster) -> None:
    async with opened(*one_etcd.endpoints) as store:
        transactions = [asyncio.ensure_future(store.txn((), [Put("a", b"%d" % number)])) for number in range(20)]
        await asyncio.sleep(0)
        await store.close()
        assert all(result.succeeded for result in await asyncio.gather(*transactions))
        with pytest.raises(StoreClosed):
            await store.grant(1000)


async def test_a_user_is_authenticated_again_when_the_token_expired(start_etcd: StartEtcd) -> None:
    with start_etcd(options=("--unsafe-no-fsync", "--auth-token-ttl=1")) as cluster:
        (member,) = cluster.members
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            member.post(f"/v3/auth/{path}", body)
        with pytest.raises(StoreFailure, match="authentication failed"):
            await EtcdStore.open(EtcdOptions((member.endpoint,), "woods", user="root", password="wrong"))
        with pytest.raises(StoreFailure, match="user name is empty"):
            await EtcdStore.connect([member.endpoint], "woods")
        async with opened(member.endpoint, user="root", password="secret", allow_old=True) as store:
            lease = await store.grant(60_000)
            # A token ends after a second without a use.
            for number in range(3):
                await asyncio.sleep(1.2 if number else 0)
                await store.renew(lease)
                assert (await store.txn((), [Put("a", b"%d" % number, lease)])).succeeded


@pytest.mark.stories
async def test_a_watch_begins_after_the_token_expired_and_a_changed_password_is_read_again(
    start_etcd: StartEtcd, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("old\n")
    with start_etcd(options=("--unsafe-no-fsync", "--auth-token-ttl=1")) as cluster:
        (member,) = cluster.members
        range_of_keys = {
            "key": b64encode(b"/cordwood/woods/").decode(),
            "range_end": b64encode(b"/cordwood/woods0").decode(),
        }
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "broker", "password": "old"}),
            ("role/add", {"name": "woods"}),
            ("role/grant", {"name": "woods", "perm": {"permType": "READWRITE", **range_of_keys}}),
            ("user/grant", {"user": "broker", "role": "woods"}),
            ("enable", {}),
        ):
            member.post(f"/v3/auth/{path}", body)
        async with opened(
            member.endpoint, cluster="woods", user="broker", password_file=str(password), allow_old=True
        ) as store:
            revision = (await store.txn((), [Put("a", b"1")])).revision
            await asyncio.sleep(3.5)
            (event,) = (await anext(store.watch("", revision))).events
            assert event.key == "a"
            lease = await store.grant(60_000)
            assert (await store.txn((), [Put("b", b"2", lease)])).succeeded
            await store.revoke(lease)
            assert await store.get("b") is None

            def change_password() -> bool:
                token = member.post("/v3/auth/authenticate", {"name": "root", "password": "secret"})["token"]
                try:
                    member.post("/v3/auth/user/changepw", {"name": "broker", "password": "new"}, token)
                except HTTPError:
                    return False  # the token's second was over
                return True

            eventually(change_password, what="another password")
            password.write_text("new\n")
            await asyncio.sleep(3.5)
            assert (await store.txn((), [Put("a", b"2")])).succeeded
        with pytest.raises(StoreFailure, match="password for etcd cannot be read"):
            await EtcdStore.open(EtcdOptions((member.endpoint,), "woods", user="broker", password_file="none"))


async def test_a_role_for_one_clusters_keys_neither_reads_nor_writes_those_of_another(start_etcd: StartEtcd) -> None:
    with start_etcd() as cluster:
        (member,) = cluster.members
        member.post("/v3/auth/user/add", {"name": "root", "password": "secret"})
        member.post("/v3/auth/user/grant", {"user": "root", "role": "root"})
        for name in ("woods", "woods-of-others"):
            # As `etcdctl role grant-permission NAME --prefix=true readwrite /cordwood/NAME/` does.
            keys = (("key", f"/cordwood/{name}/"), ("range_end", f"/cordwood/{name}0"))
            permission = {place: b64encode(key.encode()).decode() for place, key in keys}
            member.post("/v3/auth/role/add", {"name": name})
            member.post("/v3/auth/role/grant", {"name": name, "perm": {"permType": "READWRITE", **permission}})
            member.post("/v3/auth/user/add", {"name": name, "password": name})
            member.post("/v3/auth/user/grant", {"user": name, "role": name})
        member.post("/v3/auth/enable", {})
        own: dict[str, Any] = {"user": "woods", "password": "woods", "allow_old": True}
        async with opened(member.endpoint, cluster="woods", **own) as store:
            assert (await store.txn((), [Put("users/alice", b"keys")])).succeeded
        with pytest.raises(StoreFailure, match="permission denied"):
            await EtcdStore.open(EtcdOptions((member.endpoint,), "woods-of-others", **own))
        token = member.post("/v3/auth/authenticate", {"name": "woods", "password": "woods"})["token"]
        key = {"key": b64encode(b"/cordwood/woods-of-others/users/admin").decode()}
        for path, body in (("put", {**key, "value": ""}), ("range", key), ("deleterange", key)):
            with pytest.raises(HTTPError):
                member.post(f"/v3/kv/{path}", body, token)


async def test_a_connection_with_certificates_is_made_and_one_without_refused(
    start_etcd: StartEtcd, certificate: Certificate
) -> None:
    file, key = map(str, certificate)
    with start_etcd(certificate=certificate) as cluster:
        async with opened(*cluster.endpoints, ca_file=file, certificate_file=file, key_file=key) as store:
            assert (await store.txn((), [Put("a", b"")])).succeeded
        for ca_file in ("", file):
            with pytest.raises(StoreUnavailable):
                await EtcdStore.open(EtcdOptions(cluster.endpoints, "woods", deadline_ms=500, ca_file=ca_file))
        with pytest.raises(StoreFailure, match="cannot be read"):
            await EtcdStore.open(EtcdOptions(cluster.endpoints, "woods", ca_file=f"{file}.missing"))

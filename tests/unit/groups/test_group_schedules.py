"""A group under random schedules: members come, go, stall and repeat themselves, the broker dies, the disk fills up.

Invariants: a partition never has two owners in one generation; every join and sync is answered, and only once; no
position goes back. In the end, when all clients behave, the group settles and all partitions are owned.
"""

import random

import pytest
from tests.unit.groups.stage import GROUP, LIMITS, REBALANCE_MS, SESSION_MS, Actor, Stage

from cordwood.groups.classic.group import State
from cordwood.groups.classic.outbox import JoinAnswer, SyncAnswer
from cordwood.model.errors import ErrorCode
from cordwood.model.identifiers import TopicPartition

PARTITIONS = 7
CLIENTS = 4
PHASES = 3
STEPS = 100


class Client(Actor):
    """Acts as a consumer at random times, and remembers the partitions that it believes to own."""

    def __init__(self, world: "World", name: str, instance_id: str | None) -> None:
        super().__init__(world.stage, name, instance_id=instance_id)
        self.world = world
        self.owes = 0
        """Requests of this client that the broker has not answered."""
        self.positions: dict[int, int] = {}

    @property
    def identity(self) -> str:
        return self.instance_id or self.member_id

    def ask_to_join(self) -> None:
        self.owes += 1
        super().ask_to_join()

    def _joined(self, answer: JoinAnswer) -> None:
        self.owes -= 1
        assert self.owes >= 0, "a request was answered twice"
        self.positions.clear()
        super()._joined(answer)
        if answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()

    def ask_to_sync(self) -> None:
        names = [member_id for member_id, _, _ in self.joins[-1].members] if self.joins else []
        shares: dict[str, list[int]] = {name: [] for name in names}
        for partition in range(PARTITIONS):
            if names:
                shares[names[(partition + self.generation) % len(names)]].append(partition)
        self.owes += 1
        self.sync({name: bytes(partitions) for name, partitions in shares.items()})

    def take(self) -> None:
        """Takes the answers to its syncs."""
        for answer in self.syncs:
            self.owes -= 1
            assert self.owes >= 0, "a request was answered twice"
            self.world.check_share(self, answer)
        self.syncs.clear()

    def beat(self) -> None:
        error = self.heartbeat()
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION) and not self.owes:
            self.ask_to_join()

    def read_on(self) -> None:
        """Reads a little in each of its partitions, and commits. The client may have left the group long ago without
        knowing."""
        for partition in sorted(self.positions):
            self.positions[partition] += 1
            author = (self.member_id, self.instance_id, self.generation)
            self.stage.commit(TopicPartition("orders", partition), self.positions[partition], *author)
            self.world.check_positions()

    def forget(self) -> None:
        self.member_id, self.generation = "", -1
        self.positions.clear()

    def go(self) -> None:
        if self.member_id:
            self.stage.leave((self.member_id, self.instance_id))
            self.forget()


class World:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        delay_ms = self.chance.choice([0, 50])
        self.stage = Stage(LIMITS._replace(initial_rebalance_delay_ms=delay_ms, max_size=CLIENTS))
        self.clients = [self.new_client(number) for number in range(CLIENTS)]
        self.owners: dict[tuple[int, int], str] = {}
        self.best: dict[TopicPartition, int] = {}

    def new_client(self, number: int) -> Client:
        return Client(self, f"c{number}", f"instance-{number}" if number % 2 else None)

    def check_share(self, client: Client, answer: SyncAnswer) -> None:
        if answer.error is not ErrorCode.NONE:
            return
        committed = self.stage.shard.positions.of_group(GROUP)
        for partition in answer.assignment:
            owner = self.owners.setdefault((client.generation, partition), client.identity)
            assert owner == client.identity, f"partition {partition} has two owners in {client.generation}"
            position = committed.get(TopicPartition("orders", partition))
            client.positions[partition] = 0 if position is None else position.offset

    def check_positions(self) -> None:
        for partition, position in self.stage.shard.positions.of_group(GROUP).items():
            assert position.offset >= self.best.get(partition, 0), f"the position in {partition} went back"
            self.best[partition] = position.offset

    def step(self) -> None:
        client = self.chance.choice(self.clients)
        actions = {
            self.join: 4,
            self.sync: 8,
            Client.beat: 6,
            Client.read_on: 8,
            Client.go: 1,
            self.die: 1,
            self.wait: 6,
            self.restart: 1,
            self.fill_disk: 1,
        }
        (action,) = self.chance.choices(list(actions), list(actions.values()))
        action(client)
        for each in self.clients:
            each.take()

    def join(self, client: Client) -> None:
        if not client.owes or self.chance.random() < 0.1:
            client.ask_to_join()

    def sync(self, client: Client) -> None:
        if client.generation > 0 and (not client.owes or self.chance.random() < 0.1):
            client.ask_to_sync()

    def die(self, client: Client) -> None:
        """Ends a client silently; another takes its place, with the same instance id if it had one."""
        self.clients[self.clients.index(client)] = self.new_client(int(client.name[1:]))

    def wait(self, _: Client) -> None:
        self.stage.pass_time(self.chance.choice([1, 40, SESSION_MS // 2, SESSION_MS]))

    def restart(self, _: Client) -> None:
        self.stage.restart()
        for client in self.clients:
            client.owes = 0

    def fill_disk(self, _: Client) -> None:
        self.stage.disk_is_full = not self.stage.disk_is_full

    def behave(self) -> None:
        """Has every client do the next right thing, often enough."""
        self.stage.disk_is_full = False
        for _ in range(40 * (REBALANCE_MS + SESSION_MS) // 200):
            self.stage.pass_time(200)
            for client in self.clients:
                client.take()
                if client.owes:
                    continue
                if not client.member_id or client.generation < 0:
                    client.ask_to_join()
                elif client.positions:
                    client.beat()
                else:
                    client.ask_to_sync()
                    client.beat()
            if self.settled():
                return

    def settled(self) -> bool:
        for client in self.clients:
            client.take()
        owned = [partition for client in self.clients for partition in client.positions]
        idle = not any(client.owes for client in self.clients)
        return idle and self.stage.group.state is State.STABLE and sorted(owned) == list(range(PARTITIONS))


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_no_partition_has_two_owners_and_everybody_is_answered(seed: int) -> None:
    world = World(seed)
    for _ in range(PHASES):
        for _ in range(STEPS):
            world.step()
        world.behave()
        for client in world.clients:
            client.read_on()
    assert world.settled(), [(each.name, each.member_id, each.generation, each.owes) for each in world.clients]
    # Clients that died took their requests with them; no living client waits any more.
    assert not any(client.owes for client in world.clients)

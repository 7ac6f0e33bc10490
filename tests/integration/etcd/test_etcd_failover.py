"""Three members, of which one at a time is killed or frozen: nobody who uses the cluster should notice."""

from __future__ import annotations

import threading

import pytest
from support.etcd import EtcdCluster, EtcdServer
from support.inbox import Inbox

from elastic.etcd import Client, EtcdError, LeaseLost, NoLeader, WatchBatch, WatchInterrupted, prefix


class Writer(threading.Thread):
    """Puts numbered values until it is stopped; keeps what went wrong."""

    def __init__(self, client: Client) -> None:
        super().__init__()
        self.client = client
        self.written = 0
        self.errors: list[EtcdError] = []
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(0.02):
            self.write()

    def write(self) -> None:
        try:
            self.client.put(b"n", b"%d" % self.written, timeout=20)
        except EtcdError as error:
            self.errors.append(error)
        else:
            self.written += 1

    def stop(self) -> None:
        self.stopping.set()
        self.join()


@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_the_loss_of_one_member_is_not_noticed(etcd_cluster: EtcdCluster, fault: str, victim: str) -> None:
    leader = etcd_cluster.leader()
    target = leader if victim == "leader" else next(m for m in etcd_cluster.members if m is not leader)
    inbox = Inbox()
    with client_of(etcd_cluster, target) as client:
        client.watch([prefix(b"n")], into=inbox, start_revision=client.put(b"n", b"start"))
        keeper = client.keep_lease(10, into=inbox)
        writer = Writer(client)
        writer.start()
        try:
            inbox.events(20)
            getattr(target, fault)()
            # Events go on after the fault, and the lease is still held.
            inbox.find(WatchInterrupted)
            inbox.events(30, seconds=30)
            assert keeper.alive()
        finally:
            writer.stop()
            if fault == "pause":
                target.resume()
        assert writer.errors == []
        client.put(b"n", b"end", timeout=20)
        while b"end" not in seen(inbox):
            inbox.events(1)
        assert inbox.count(LeaseLost) == 0
        # Complete and in order. A put whose answer was lost was sent again, so the same value may come once
        # more, even late: a frozen member carries out what it had received when it wakes.
        first_times = list(dict.fromkeys(seen(inbox)))
        assert first_times == [b"start", *(b"%d" % number for number in range(writer.written)), b"end"]


def client_of(cluster: EtcdCluster, member: EtcdServer) -> Client:
    """A client that uses this member first: each client has an order of its own."""
    while True:
        client = Client(cluster.endpoints)
        if client.status().endpoint == member.endpoint:
            return client
        client.close()


def seen(inbox: Inbox) -> list[bytes]:
    batches = [item for item in list(inbox.items) if isinstance(item, WatchBatch)]
    return [event.kv.value for batch in batches for event in batch.events]


def test_every_member_in_turn(etcd_cluster: EtcdCluster) -> None:
    inbox = Inbox()
    with Client(etcd_cluster.endpoints) as client:
        client.watch([prefix(b"n")], into=inbox, start_revision=client.put(b"n", b"start"))
        keeper = client.keep_lease(10, into=inbox)
        for turn, member in enumerate(etcd_cluster.members * 2):
            member.kill()
            for number in range(10):
                client.put(b"n/%d/%d" % (turn, number), b"", timeout=20)
            member.start().wait_ready()
        client.put(b"n/end", b"", timeout=20)
        keys: set[bytes] = set()
        while b"n/end" not in keys:  # a put whose answer was lost was sent again, and is two events
            keys |= {event.kv.key for event in inbox.events(1)}
        assert len(keys) == 62
        assert keeper.alive()


def test_without_a_quorum_calls_fail_in_words_and_watches_are_interrupted(etcd_cluster: EtcdCluster) -> None:
    inbox = Inbox()
    survivor, *others = etcd_cluster.members
    with Client([survivor.endpoint]) as client:
        client.watch([b"n"], into=inbox, start_revision=client.put(b"n", b"1"))
        inbox.expect(WatchBatch)
        for member in others:
            member.pause()
        interrupted = inbox.expect(WatchInterrupted)
        assert isinstance(interrupted.error, NoLeader)
        with pytest.raises(NoLeader, match="majority"):
            client.put(b"n", b"2", timeout=2)
        # What the member has can still be read.
        assert client.get(b"n", serializable=True) is not None
        for member in others:
            member.resume()
        client.put(b"n", b"3", timeout=20)
        assert inbox.events(1)[0].kv.value == b"3"

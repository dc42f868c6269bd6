"""A driver of confluent-kafka's or aiokafka's consumers: members.py confluent|aiokafka. See ../groups_test.go for what
it reads and prints."""
import asyncio
import sys
import threading

COMMIT_AFTER = 50  # records

output = threading.Lock()


class Member:
    """What both libraries' members share: what they say, and what they have to commit."""

    def __init__(self, name):
        self.name, self.stopping = name, threading.Event()
        self.owned, self.next, self.uncommitted = set(), {}, 0

    def say(self, what):
        with output:
            print(self.name, what, flush=True)

    def owns(self, partitions):
        self.owned = set(partitions)
        self.say(" ".join(["owns", *map(str, sorted(self.owned))]))

    def read(self, partition, offset, value):
        self.say(f"read {partition} {offset} {value.decode()}")
        self.next[partition] = offset + 1
        self.uncommitted += 1

    def take(self):
        """Returns what is to be committed, and how many records that covers."""
        taken = self.next, self.uncommitted
        self.next, self.uncommitted = {}, 0
        return taken


def confluent(member, bootstrap, group, topic):
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "client.id": member.name, "enable.auto.commit": False,
                         "auto.offset.reset": "earliest", "partition.assignment.strategy": "roundrobin", "heartbeat.interval.ms": 300})

    def commit():
        offsets, count = member.take()
        if not offsets:
            return
        try:
            done = consumer.commit(offsets=[TopicPartition(topic, p, o) for p, o in offsets.items()], asynchronous=False)
            if any(p.error for p in done):
                member.say(f"failed {count}")
        except KafkaException:
            member.say(f"failed {count}")

    def assigned(_, partitions):
        member.owns(p.partition for p in partitions)

    def revoked(_, partitions):
        commit()
        member.owns(())

    def lost(_, partitions):
        member.say(f"failed {member.take()[1]}")
        member.owns(())

    consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=lost)
    while not member.stopping.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        member.read(message.partition(), message.offset(), message.value())
        if member.uncommitted >= COMMIT_AFTER:
            commit()
    commit()
    consumer.close()


def aiokafka(member, bootstrap, group, topic):
    asyncio.run(aiokafka_member(member, bootstrap, group, topic))


async def aiokafka_member(member, bootstrap, group, topic):
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, client_id=member.name, enable_auto_commit=False,
                                auto_offset_reset="earliest", heartbeat_interval_ms=300, session_timeout_ms=45000,
                                partition_assignment_strategy=(RoundRobinPartitionAssignor,))

    async def commit():
        offsets, count = member.take()
        if not offsets:
            return
        try:
            await consumer.commit({TopicPartition(topic, p): o for p, o in offsets.items()})
        except KafkaError:
            member.say(f"failed {count}")

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked):
            await commit()
            member.owns(())

        async def on_partitions_assigned(self, assigned):
            member.owns(p.partition for p in assigned)

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    while not member.stopping.is_set():
        for batch in (await consumer.getmany(timeout_ms=100)).values():
            for r in batch:
                member.read(r.partition, r.offset, r.value)
        if member.uncommitted >= COMMIT_AFTER:
            await commit()
    await commit()
    await consumer.stop()


def run(library, member, *args):
    try:
        library(member, *args)
    except BaseException as e:
        member.say(f"died {e!r}")
    member.say("left")


def main(library):
    running = {}
    for line in sys.stdin:
        verb, name, *args = line.split()
        if verb == "start":
            member = Member(name)
            thread = threading.Thread(target=run, args=(library, member, *args))
            running[name] = member, thread
            thread.start()
        else:
            running.pop(name)[0].stopping.set()
    for member, _ in running.values():
        member.stopping.set()


main(globals()[sys.argv[1]])

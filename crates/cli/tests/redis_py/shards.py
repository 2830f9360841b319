"""redis-py's RedisCluster over shards whose slots move and whose nodes die. Takes the first port, how many
nodes there are, the last of the slots that move (they begin at 0), and whether acknowledged means what a
replica has (WAIT). Writes until a line comes, then looks at every key. The last line is JSON: counts, and
errors by kind.

A command that fails may have run: its key has a least and a greatest value from then on."""

import json
import random
import sys
import threading
import time

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.crc import key_slot
from redis.retry import Retry

port, nodes, last_slot, waits = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "wait"
THREADS, KEYS, FIXED = 3, 40, 1500
# A client that tries once: it says when it does not know.
START = [ClusterNode("127.0.0.1", int(port)) for port in sys.argv[5 : 5 + nodes]] or [ClusterNode("127.0.0.1", port)]


def connect():
    while True:
        try:
            return RedisCluster(
                startup_nodes=START, decode_responses=True, socket_timeout=5, retry=Retry(NoBackoff(), 0)
            )
        except redis.exceptions.RedisError as error:
            count(error)
            time.sleep(0.02)


errors, lock, stop, wrong = {}, threading.Lock(), threading.Event(), []
# A thread that finds a wrong value ends, and the program does at its end.
threading.excepthook = lambda end: wrong.append(f"{end.exc_type.__name__}: {end.exc_value}")


def count(error):
    kind = type(error).__name__
    if type(error) is redis.exceptions.ResponseError:
        kind += " " + str(error).split(" ")[0]
    with lock:
        errors[kind] = errors.get(kind, 0) + 1


def names():
    """Half of the keys are in slots that move."""
    moving, others, number = [], [], 0
    while len(moving) < THREADS * KEYS // 2 + FIXED // 2 or len(others) < THREADS * KEYS // 2 + FIXED // 2:
        name = f"key:{number}"
        (moving if key_slot(name.encode()) <= last_slot else others).append(name)
        number += 1
    half = THREADS * KEYS // 2
    mine = [moving[at * KEYS // 2 : (at + 1) * KEYS // 2] + others[at * KEYS // 2 : (at + 1) * KEYS // 2]
            for at in range(THREADS)]
    return mine, moving[half : half + FIXED // 2] + others[half : half + FIXED // 2]


def has_replica(client, name):
    """Whether a replica has the write before."""
    if not waits:
        return True
    node = client.get_node_from_key(name)
    return client.execute_command("WAIT", 1, 2000, target_nodes=node) >= 1


class Writer(threading.Thread):
    def __init__(self, keys, seed):
        super().__init__()
        self.range, self.random, self.ops, self.longest = {key: (0, 0) for key in keys}, random.Random(seed), 0, 0

    def run(self):
        client, since = connect(), time.monotonic()
        while not stop.is_set():
            key = self.random.choice(list(self.range))
            least, most = self.range[key]
            try:
                if self.random.random() < 0.3:
                    now = int(client.get(key) or 0)
                    assert least <= now <= most, f"{key} is {now}, not {least} to {most}"
                    continue
                value = None
                value = client.incr(key)
                assert least + 1 <= value <= most + 1, f"{key} is {value}, not above {least} to {most}"
                # Until a replica has it, a failover may take it back.
                self.range[key] = (value if has_replica(client, key) else least, value)
                self.ops += 1
                self.longest, since = max(self.longest, time.monotonic() - since), time.monotonic()
            except redis.exceptions.RedisError as error:
                count(error)
                self.range[key] = (least, most + 1 if value is None else max(value, most))
                time.sleep(0.01)


def patiently(command):
    begun = time.monotonic()
    while True:
        try:
            return command()
        except redis.exceptions.RedisError as error:
            count(error)
            if time.monotonic() - begun > 60:
                raise
            time.sleep(0.02)


mine, fixed = names()
client = connect()
for name in fixed:
    patiently(lambda: client.set(name, "value of " + name))
patiently(lambda: has_replica(client, fixed[0]))
errors.clear()
writers = [Writer(keys, seed) for seed, keys in enumerate(mine)]
for writer in writers:
    writer.start()
print("writing", flush=True)
sys.stdin.readline()
stop.set()
for writer in writers:
    writer.join()
assert not wrong, wrong
during, client = dict(errors), connect()
for writer in writers:
    for key, (least, most) in writer.range.items():
        now = int(patiently(lambda: client.get(key)) or 0)
        assert least <= now <= most, f"{key} is {now}, not {least} to {most}"
for name in fixed:
    now = patiently(lambda: client.get(name))
    assert now == "value of " + name, f"{name} is {now}"
print(json.dumps({"client": f"redis-py {redis.__version__}", "increments": sum(writer.ops for writer in writers),
                  "longest_s": round(max(writer.longest for writer in writers), 3), "errors": during}))

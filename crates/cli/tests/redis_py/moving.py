"""redis-py's RedisCluster with its defaults, while slots move under it. Takes the ports of two nodes, the one
with the slots first, their ids, and the slots."""

import sys
import threading
import time

import redis
from redis.cluster import RedisCluster

ports, ids, slots = [int(port) for port in sys.argv[1:3]], sys.argv[3:5], sys.argv[5]
nodes = [redis.Redis(port=port, decode_responses=True) for port in ports]
rounds, stop, errors = {}, threading.Event(), []


def write(number):
    client = RedisCluster(host="127.0.0.1", port=ports[0], decode_responses=True)
    count = 0
    while not stop.is_set():
        for name in (f"count:{number}:{at}" for at in range(20)):
            try:
                value = client.incr(name)
            except redis.exceptions.RedisError as error:
                errors.append(repr(error))
                continue
            count += 1
            rounds[name] = rounds.get(name, 0) + 1
            assert value == rounds[name], (name, value, rounds[name])
    return count


writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
for writer in writers:
    writer.start()
for turn in range(6):
    time.sleep(0.2)
    source, target = turn % 2, 1 - turn % 2
    reply = nodes[source].execute_command("CLUSTERX", "MIGRATE", slots, ids[target], "SYNC", "60")
    assert reply in ("OK", True), reply
stop.set()
for writer in writers:
    writer.join()
client = RedisCluster(host="127.0.0.1", port=ports[0], decode_responses=True)
assert {name: int(client.get(name)) for name in rounds} == rounds
print(f"redis-py {redis.__version__}: {sum(rounds.values())} increments over 6 moves, errors: {errors}")
assert not errors, errors

"""redis-py's RedisCluster with its defaults: keys of all shards, pipelines, messages. Takes a node's port."""

import sys

from redis.cluster import RedisCluster

import redis

port = int(sys.argv[1]) if len(sys.argv) > 1 else 7001
client = RedisCluster(host="127.0.0.1", port=port, decode_responses=True)

# Keys of all slots: the client asks the node that serves each of them.
names = [f"user:{number}" for number in range(300)]
for number, name in enumerate(names):
    client.set(name, number)
assert [int(client.get(name)) for name in names] == list(range(300))
nodes = {client.get_node_from_key(name).name for name in names}
assert len(nodes) == len(client.get_primaries()), nodes
assert sorted(client.scan_iter("user:*", count=50)) == sorted(names)

# Many keys in one call, of one slot: a hash tag keeps them together.
client.mset({"{cart:1}items": 3, "{cart:1}sum": 42})
assert client.mget("{cart:1}items", "{cart:1}sum") == ["3", "42"]
try:
    client.execute_command("MGET", "user:1", "user:2")
    raise AssertionError("keys of two slots in one command")
except redis.exceptions.RedisClusterException:
    pass
assert client.mget_nonatomic(names) == [str(number) for number in range(300)]

# A pipeline is split by nodes.
with client.pipeline() as pipe:
    for name in names:
        pipe.incr(name)
    assert pipe.execute() == list(range(1, 301))

# A script, a queue, and messages of a shard.
add = client.register_script("return redis.call('incrby', KEYS[1], ARGV[1])")
assert add(keys=["{cart:1}sum"], args=[8]) == 50
client.rpush("jobs", "a", "b")
assert client.blpop("jobs", timeout=5) == ("jobs", "a")
messages = client.pubsub()
messages.ssubscribe("news")
assert messages.get_sharded_message(timeout=5)["type"] == "ssubscribe"
client.spublish("news", "hello")
message = messages.get_sharded_message(timeout=5)
assert message and message["data"] == "hello", message

assert client.delete(*names) == 300
print("redis-py", redis.__version__, "is served by", len(nodes), "shards")

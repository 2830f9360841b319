"""pymemcache with its defaults: items, counters, compare and swap. Takes the port of `serve --memcached`."""

import sys

from pymemcache.client.base import Client, PooledClient
from pymemcache import serde

port = int(sys.argv[1]) if len(sys.argv) > 1 else 11211
client = Client(("127.0.0.1", port))

# Items, with a deadline, several at once.
assert client.set("greeting", "hello", expire=60)
assert client.get("greeting") == b"hello"
assert client.get("absent", "nothing") == "nothing"
assert client.set_many({f"key{number}": str(number) for number in range(100)}) == []
assert client.get_many([f"key{number}" for number in range(100)])["key99"] == b"99"
assert client.add("greeting", "again", noreply=False) is False
assert client.replace("greeting", "hi", noreply=False) is True
assert client.append("greeting", " there", noreply=False) is True
assert client.touch("greeting", 120, noreply=False) is True

# A counter.
client.set("visits", "41")
assert client.incr("visits", 1) == 42
assert client.decr("visits", 2) == 40

# Compare and swap: only the first of two who have read the same.
value, unique = client.gets("greeting")
assert value == b"hi there"
assert client.cas("greeting", "first", unique, noreply=False) is True
assert client.cas("greeting", "second", unique, noreply=False) is False

# Python's values, through a pool of connections.
pool = PooledClient(("127.0.0.1", port), serde=serde.pickle_serde, max_pool_size=4)
pool.set("user", {"name": "Ada", "languages": ["en", "fr"]})
assert pool.get("user") == {"name": "Ada", "languages": ["en", "fr"]}

assert client.delete("greeting", noreply=False) is True
assert client.get("greeting") is None
assert int(client.stats()[b"curr_items"]) >= 101
print("pymemcache is served")

"""Gets one key many times in one pipeline, as an ordinary program on redis-py does: all requests, then all
replies.

Usage: redis_py_pipeline.py PORT COUNT BYTES
Exit codes: 0 all replies are right, anything else is a failure.
"""

import sys

import redis

port, count, length = map(int, sys.argv[1:])
value = b"v" * length
client = redis.Redis(port=port, socket_timeout=60)
client.set("k", value)
pipeline = client.pipeline(transaction=False)
for _ in range(count):
    pipeline.get("k")
replies = pipeline.execute()
assert len(replies) == count, len(replies)
assert all(reply == value for reply in replies)
assert client.ping()
print(redis.__version__)

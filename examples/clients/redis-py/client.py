"""redis-py with its defaults: pipelines, transactions, messages and a queue. Takes the server's port."""

import sys
import threading

import redis

port = int(sys.argv[1]) if len(sys.argv) > 1 else 6379
client = redis.Redis(port=port, decode_responses=True)
client.delete("visits", "user:1", "board", "stock", "jobs")

# Keys of several types.
client.set("visits", 41, ex=60)
assert client.incr("visits") == 42
client.hset("user:1", mapping={"name": "Ada", "language": "en"})
assert client.hgetall("user:1") == {"name": "Ada", "language": "en"}
client.zadd("board", {"ada": 3, "bob": 5, "cy": 4})
assert client.zrange("board", 0, 1, desc=True, withscores=True) == [("bob", 5.0), ("cy", 4.0)]

# A pipeline: many commands, one round trip.
with client.pipeline(transaction=False) as pipe:
    for number in range(1000):
        pipe.rpush("jobs", number)
    pipe.llen("jobs")
    assert pipe.execute()[-1] == 1000

# A transaction that starts again if someone else changes what it has read.
client.set("stock", 10)


def buy(pipe):
    left = int(pipe.get("stock"))
    pipe.multi()
    pipe.set("stock", left - 1)


threads = [threading.Thread(target=client.transaction, args=(buy, "stock")) for _ in range(5)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert client.get("stock") == "5"

# Messages.
with client.pubsub(ignore_subscribe_messages=True) as messages:
    messages.subscribe("news")
    messages.psubscribe("alerts.*")
    while client.publish("news", "hello") == 0 or client.pubsub_numpat() == 0:
        pass
    client.publish("alerts.fire", "run")
    heard = []
    while len(heard) < 2:
        message = messages.get_message(timeout=10)
        if message and message["data"] not in heard:
            heard.append(message["data"])
    assert heard == ["hello", "run"], heard

# A queue: the worker waits until there is work.
client.delete("jobs")
done = []


def work():
    own = redis.Redis(port=port, decode_responses=True)
    while (job := own.blpop("jobs", timeout=10)[1]) != "stop":
        done.append(job)


worker = threading.Thread(target=work)
worker.start()
for job in ["a", "b", "c", "stop"]:
    client.rpush("jobs", job)
worker.join()
assert done == ["a", "b", "c"], done
print("redis-py", redis.__version__, "is served")

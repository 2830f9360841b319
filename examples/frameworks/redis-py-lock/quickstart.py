"""redis-py's lock: threads that take turns, and never two of them at once.

    python3 quickstart.py PORT [TURNS]

A lock that was given is still held after a crash of the server: nobody else gets it before its time is over.
"""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, RedisError

PORT = int(sys.argv[1])
TURNS = int(sys.argv[2]) if len(sys.argv) > 2 else 100
inside = threading.Lock()
count = lost = 0


def take_turns(turns):
    global count, lost
    client = redis.Redis(port=PORT)
    while turns:
        lock = client.lock("turn", timeout=2, sleep=0.005)
        try:
            if not lock.acquire(blocking_timeout=1):
                continue
        except (RedisError, OSError):
            time.sleep(0.02)
            continue
        assert inside.acquire(blocking=False), "two have the lock"
        count += 1
        time.sleep(0.005)
        inside.release()
        turns -= 1
        try:
            lock.release()
        except (LockError, RedisError, OSError):
            # Its release may have come through. If not, the lock ends by itself.
            lost += 1


threads = [threading.Thread(target=take_turns, args=(TURNS // 4,)) for _ in range(4)]
failed = []
threading.excepthook = lambda caught: failed.append(caught.exc_value)
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failed, failed
assert count == TURNS // 4 * 4
print(f"served: {count} turns, {lost} releases without an answer")

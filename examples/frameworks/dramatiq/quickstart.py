"""Dramatiq's guide: actors, a worker, and results.

    python3 quickstart.py PORT [JOBS]

The broker acknowledges a message when its actor has ended, so that a worker which was cut off gets it again;
one whose result does not come in time is sent again here too.
"""

import sys
import time

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.errors import BrokerConnectionError
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from dramatiq.results.errors import ResultTimeout
from redis.exceptions import RedisError

PORT = int(sys.argv[1])
broker = RedisBroker(host="127.0.0.1", port=PORT, heartbeat_timeout=2_000, maintenance_chance=100_000)
broker.add_middleware(Results(backend=RedisBackend(host="127.0.0.1", port=PORT)))
dramatiq.set_broker(broker)


@dramatiq.actor(store_results=True)
def add(x, y):
    return x + y


def result_of(x, y):
    """Sends a message until its result comes; returns it, and how often it was sent again."""
    again = 0
    while True:
        try:
            return add.send(x, y).get_result(block=True, timeout=4_000), again
        except (ResultTimeout, BrokerConnectionError, RedisError, OSError):
            again += 1
            time.sleep(0.1)


def main():
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    worker = dramatiq.Worker(broker, worker_threads=2)
    worker.start()
    again = 0
    for number in range(jobs):
        result, more = result_of(number, number)
        assert result == 2 * number, (number, result)
        again += more
        time.sleep(0.02)
    worker.stop()
    print(f"served: {jobs} messages, {again} of them sent again")


if __name__ == "__main__":
    main()

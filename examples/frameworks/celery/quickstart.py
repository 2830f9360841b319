"""Celery's first steps: a worker, tasks that are sent to it, and their results.

    python3 quickstart.py PORT [JOBS]

A task whose result does not come is sent again, as a program has to: a worker that is cut off from its broker
in the middle of a pop never learns of the task. The last line is "served", with the number of tasks that were
sent again.
"""

import os
import subprocess
import sys
import time

from celery import Celery
from celery.exceptions import TimeoutError
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

PORT = os.environ.get("PORT") or sys.argv[1]
app = Celery("quickstart", broker=f"redis://127.0.0.1:{PORT}/0", backend=f"redis://127.0.0.1:{PORT}/1")
app.conf.broker_connection_retry_on_startup = True
app.conf.broker_connection_max_retries = None


@app.task(name="quickstart.add")
def add(x, y):
    return x + y


def result_of(x, y):
    """Sends a task until its result comes; returns it, and how often the task was sent again."""
    again = 0
    while True:
        try:
            return add.delay(x, y).get(timeout=8), again
        except (TimeoutError, OperationalError, RedisError, OSError):
            again += 1
            time.sleep(0.1)


def main():
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "quickstart", "worker", "--pool", "solo", "--loglevel", "ERROR"],
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env={**os.environ, "PORT": PORT},
    )
    again = 0
    try:
        for number in range(jobs):
            result, more = result_of(number, number)
            assert result == 2 * number, (number, result)
            again += more
            time.sleep(0.02)
    finally:
        worker.terminate()
        worker.wait()
    print(f"served: {jobs} tasks, {again} of them sent again")


if __name__ == "__main__":
    main()

"""Transactions of redis-py with its defaults, on the server whose port is given. Exits with 0 if all is as it
should be."""

import sys
import threading

import redis

PORT = int(sys.argv[1])
THREADS, ROUNDS = 4, 50


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, decode_responses=True, **options)


def raises(error, body):
    try:
        body()
    except error as e:
        return str(e)
    raise AssertionError(f"{error.__name__} was not raised")


def a_pipeline_is_a_transaction(r):
    with r.pipeline() as pipe:
        pipe.set("a", 1).incr("a").get("a").mset({"b": "x", "c": "y"}).expire("b", 100).delete("c", "nosuch")
        assert pipe.execute() == [True, 2, "2", True, True, 1]
    assert r.mget("a", "b", "c") == ["2", "x", None]


def errors_of_commands_undo_nothing(r):
    r.set("text", "x")
    with r.pipeline() as pipe:
        pipe.set("d", 1).incr("text").set("e", 2)
        assert "not an integer" in raises(redis.ResponseError, pipe.execute)
        pipe.set("d", 3).incr("text").get("d")
        replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and isinstance(replies[1], redis.ResponseError) and replies[2] == "3"
    assert r.mget("d", "e", "text") == ["3", "2", "x"]


def refused_commands_abort(r):
    with r.pipeline() as pipe:
        pipe.set("refused", 1).execute_command("NOSUCH", "x")
        assert "unknown command" in raises(redis.ResponseError, pipe.execute)
    assert r.get("refused") is None


def a_changed_key_is_a_watch_error(r):
    r.set("k", 1)
    with r.pipeline() as pipe:
        pipe.watch("k")
        value = int(pipe.get("k"))
        r.set("k", 10)
        pipe.multi()
        pipe.set("k", value + 1)
        raises(redis.WatchError, pipe.execute)
    assert r.get("k") == "10"
    with r.pipeline() as pipe:
        pipe.watch("k")
        pipe.unwatch()
        r.set("k", 11)
        assert pipe.get("k").execute() == ["11"]


def transactions_are_tried_again(r):
    """Threads add to one number, each reading it before it writes: no addition is lost."""
    r.set("total", 0)
    failures = []

    def add(pipe):
        total = int(pipe.get("total"))
        pipe.multi()
        pipe.set("total", total + 1).incr("tries")

    def work():
        try:
            for _ in range(ROUNDS):
                assert r.transaction(add, "total")[0] is True
        except Exception as e:
            failures.append(e)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    assert r.mget("total", "tries") == [str(THREADS * ROUNDS)] * 2


def a_pipeline_without_a_transaction(r):
    pipe = r.pipeline(transaction=False)
    for number in range(1000):
        pipe.set(f"p:{number}", number)
    assert pipe.execute() == [True] * 1000


TESTS = [
    a_pipeline_is_a_transaction,
    errors_of_commands_undo_nothing,
    refused_commands_abort,
    a_changed_key_is_a_watch_error,
    transactions_are_tried_again,
    a_pipeline_without_a_transaction,
]

for options in [{}, {"protocol": 2}, {"protocol": 3}, {"db": 5}]:
    for test in TESTS:
        r = connect(**options)
        r.flushall()
        test(r)
        r.close()
        print("ok", options, test.__name__)

// node-redis with its defaults: pipelines, transactions, messages and a queue. Takes the server's port.
"use strict";

const assert = require("node:assert/strict");
const { createClient, WatchError } = require("redis");

const port = Number(process.argv[2] ?? 6379);

async function connect() {
  const client = createClient({ socket: { port } });
  client.on("error", (error) => {
    throw error;
  });
  return client.connect();
}

/** Lowers a number that others lower at the same time. */
async function buy(client) {
  for (;;) {
    try {
      await client.executeIsolated(async (own) => {
        await own.watch("stock");
        const left = Number(await own.get("stock"));
        await own.multi().set("stock", left - 1).exec();
      });
      return;
    } catch (error) {
      if (!(error instanceof WatchError)) throw error;
    }
  }
}

async function main() {
  const client = await connect();
  await client.del(["visits", "user:1", "board", "stock", "jobs"]);

  // Keys of several types.
  await client.set("visits", 41, { EX: 60 });
  assert.equal(await client.incr("visits"), 42);
  await client.hSet("user:1", { name: "Ada", language: "en" });
  assert.deepEqual({ ...(await client.hGetAll("user:1")) }, { name: "Ada", language: "en" });
  await client.zAdd("board", [{ score: 3, value: "ada" }, { score: 5, value: "bob" }]);
  assert.deepEqual(await client.zRange("board", 0, 0, { REV: true }), ["bob"]);

  // Commands of one tick are sent together.
  const numbers = Array.from({ length: 1000 }, (_, number) => client.rPush("jobs", String(number)));
  assert.equal((await Promise.all(numbers)).at(-1), 1000);

  // A transaction, and one that starts again if someone else changes what it has read.
  assert.deepEqual(await client.multi().set("stock", 10).incr("visits").get("stock").exec(), ["OK", 43, "10"]);
  await Promise.all([buy(client), buy(client), buy(client)]);
  assert.equal(await client.get("stock"), "7");

  // Messages, on a connection of their own.
  const subscriber = client.duplicate();
  await subscriber.connect();
  const heard = [];
  const all = new Promise((resolve) => {
    const hear = (message) => heard.push(message) === 2 && resolve();
    subscriber.subscribe("news", hear).then(() => subscriber.pSubscribe("alerts.*", hear)).then(async () => {
      await client.publish("news", "hello");
      await client.publish("alerts.fire", "run");
    });
  });
  await all;
  assert.deepEqual(heard, ["hello", "run"]);
  await subscriber.quit();

  // A queue: the worker waits until there is work.
  await client.del("jobs");
  const worker = await connect();
  const done = [];
  const work = (async () => {
    for (;;) {
      const { element } = await worker.blPop("jobs", 10);
      if (element === "stop") return;
      done.push(element);
    }
  })();
  for (const job of ["a", "b", "c", "stop"]) await client.rPush("jobs", job);
  await work;
  assert.deepEqual(done, ["a", "b", "c"]);
  await worker.quit();
  await client.quit();
  console.log("node-redis is served");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});

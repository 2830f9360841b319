// Redlock's first example, on one server: tasks that take turns, and never two of them at once.
//
//   node quickstart.js PORT [TURNS]
//
// A lock that was given is still held after a crash of the server.

const { default: Client } = require("ioredis");
const Redlock = require("redlock");

const [port, turns = 100] = process.argv.slice(2).map(Number);
const client = new Client({ port, retryStrategy: () => 50, maxRetriesPerRequest: 0 });
client.on("error", () => {});
const redlock = new Redlock([client], { retryCount: 0 });
redlock.on("clientError", () => {});
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

let inside = 0;
let count = 0;
let lost = 0;

async function takeTurns(left) {
  while (left > 0) {
    let lock;
    try {
      lock = await redlock.lock("turn", 2000);
    } catch {
      await sleep(10);
      continue;
    }
    inside += 1;
    if (inside !== 1) throw new Error("two have the lock");
    count += 1;
    left -= 1;
    await sleep(5);
    inside -= 1;
    await lock.unlock().catch(() => (lost += 1));
  }
}

(async () => {
  await Promise.all([1, 2, 3, 4].map(() => takeTurns(Math.floor(turns / 4))));
  console.log(`served: ${count} turns, ${lost} releases without an answer`);
  process.exit(0);
})();

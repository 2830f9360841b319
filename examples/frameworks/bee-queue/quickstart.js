// Bee-Queue's first example: a queue, a worker, and the events of jobs.
//
//   node quickstart.js PORT [JOBS]
//
// A job whose result does not come is made again, as a program has to if its events are lost with the
// connection. The last line is "served", with the number of jobs that were made again.

const Queue = require("bee-queue");

const [port, jobs = 20] = process.argv.slice(2).map(Number);
const settings = {
  redis: { host: "127.0.0.1", port, retry_strategy: () => 50 },
  stallInterval: 1000,
  removeOnSuccess: true,
};
const quiet = (queue) => queue.on("error", () => {});
const sleep = (ms) => new Promise((wake) => setTimeout(wake, ms));

const worker = quiet(new Queue("addition", settings));
worker.process(2, async (job) => job.data.x + job.data.y);
worker.checkStalledJobs(1000, () => {});
const queue = quiet(new Queue("addition", { ...settings, isWorker: false }));

async function resultOf(x, y) {
  for (let again = 0; ; again++) {
    try {
      const job = queue.createJob({ x, y }).retries(100);
      const done = new Promise((resolve, reject) => {
        job.on("succeeded", resolve);
        setTimeout(() => reject(new Error("no result")), 3000);
      });
      done.catch(() => {});
      await job.save();
      return [await done, again];
    } catch (error) {
      await sleep(100);
    }
  }
}

(async () => {
  await Promise.all([worker.ready(), queue.ready()]);
  let again = 0;
  for (let number = 0; number < jobs; number++) {
    const [result, more] = await resultOf(number, number);
    if (result !== 2 * number) throw new Error(`${number}: ${result}`);
    again += more;
    await sleep(20);
  }
  console.log(`served: ${jobs} jobs, ${again} of them made again`);
  process.exit(0);
})();

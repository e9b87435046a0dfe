// BullMQ on Redis, by Node: the commands of harness.py.
import { Queue, Worker } from "bullmq";
import { existsSync, openSync, readFileSync, writeSync } from "node:fs";

const CROWD = 50;
const BULK = 1000;
const PAUSE = 15;
const PATIENCE = 30000;

const url = new URL(process.env.BENCH_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const kept = { removeOnComplete: false };
const [command, ...numbers] = process.argv.slice(2);
const counts = numbers.map(Number);

const range = (first, last) => Array.from({ length: last - first }, (_, at) => first + at);
const now = () => process.hrtime.bigint();
const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE));

let log;
function tick(number) {
  log ??= openSync(process.env.BENCH_LOG, "a");
  writeSync(log, `${String(number).padStart(9, "0")} ${String(now()).padStart(20, "0")}\n`);
}

async function timed(work) {
  const queue = new Queue("bench", { connection, defaultJobOptions: kept });
  await queue.waitUntilReady();
  const began = now();
  const answer = await work(queue);
  const seconds = Number(now() - began) / 1e9;
  await queue.close();
  return answer ?? seconds;
}

const submit = (queue, number) => queue.add("tick", { number });
const many = (queue, numbers, options = {}) =>
  queue.addBulk(numbers.map((number) => ({ name: "tick", data: { number }, opts: options })));

const commands = {
  one: () => null,
  "one-async": (count) =>
    timed(async (queue) => {
      for (const number of range(0, count)) await submit(queue, number);
    }),
  crowd: (count) =>
    timed(async (queue) => {
      const from = async (first) => {
        for (let number = first; number < count; number += CROWD) await submit(queue, number);
      };
      await Promise.all(range(0, CROWD).map(from));
    }),
  bulk: (count) =>
    timed(async (queue) => {
      for (let first = 0; first < count; first += BULK) await many(queue, range(first, Math.min(first + BULK, count)));
    }),
  mixed: (low, high) =>
    timed(async (queue) => {
      for (let first = 0; first < low; first += BULK)
        await many(queue, range(first, Math.min(first + BULK, low)), { priority: 10 });
      await many(queue, range(low, low + high), { priority: 1 });
    }),
  pace: (count) =>
    timed(async (queue) => {
      const moments = [];
      const began = now();
      await submit(queue, count);
      while (!existsSync(process.env.BENCH_LOG)) {
        await pause();
        if (now() - began > PATIENCE * 1e6) throw new Error(`no task ran within ${PATIENCE} ms`);
      }
      for (const number of range(0, count)) {
        await pause();
        moments.push(Number(now()));
        await submit(queue, number);
      }
      return moments;
    }),
  work: () =>
    new Promise(() => {
      const work = async (job) => {
        tick(job.data.number);
        return job.data.number;
      };
      new Worker("bench", work, { connection, concurrency: 100 });
    }),
  version: () => JSON.parse(readFileSync(new URL("node_modules/bullmq/package.json", import.meta.url))).version,
};

console.log(JSON.stringify(await commands[command](...counts)));

// A fairlead worker in plain Node (20 or newer), without dependencies.
//
//     FAIRLEAD_URL=http://127.0.0.1:8420 FAIRLEAD_API_KEY=fl_… node worker.mjs
//
// It registers, takes tasks for its free slots in one long poll, keeps their leases by heartbeats, says how they ended,
// and on SIGTERM ends what it runs and hands back the rest. `handlers.mjs` has what is yours: a function per task type.

import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import { handlers } from "./handlers.mjs";

const URL_BASE = (process.env.FAIRLEAD_URL ?? "http://127.0.0.1:8420").replace(/\/+$/, "");
const KEY = process.env.FAIRLEAD_API_KEY;
const CAPACITY = Number(process.env.CAPACITY ?? 4);
const DRAIN_MS = Number(process.env.DRAIN_SECONDS ?? 10) * 1000;
const POLL_SECONDS = 20;

/** The answer of the server: what it says, or an error that has its problem document. */
async function call(path, body, { signal, seconds = 30 } = {}) {
  const timeout = AbortSignal.timeout(seconds * 1000);
  const response = await fetch(`${URL_BASE}/internal/workers/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json", ...(KEY ? { authorization: `Bearer ${KEY}` } : {}) },
    body: JSON.stringify(body),
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
  });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), { status: response.status, problem: answer });
  return answer;
}

let me; // What the server said when this worker registered.
const running = new Map(); // By task id: the task and what stops it.
const leaving = new AbortController();

async function register() {
  me = await call("register", {
    worker_id: me?.worker_id, // The same again: leases that it holds stay its own.
    capabilities: [],
    capacity: CAPACITY,
    task_types: Object.keys(handlers),
    version: "1.0",
    host: hostname(),
  });
  console.log(`registered as ${me.worker_id}`);
}

/** Try until it works; an unknown worker registers again. Only a lost lease, or a request that is wrong, ends it. */
async function persist(what, attempt) {
  for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
    try {
      return await attempt();
    } catch (error) {
      if (leaving.signal.aborted && error.name === "AbortError") throw error;
      if (error.status === 404) {
        await register().catch(() => {});
      } else if (error.status && error.status < 500 && error.status !== 429) {
        throw error;
      }
      if (pause === 100) console.warn(`cannot ${what}, trying until it works: ${error.message}`);
      await sleep(pause * (0.5 + Math.random() / 2));
    }
  }
}

async function run(task) {
  const { task_id, lease } = task;
  const stop = new AbortController();
  // If it is given to this worker a second time, the lease that it had is lost.
  running.get(task_id)?.stop.abort("lost");
  running.set(task_id, { lease, stop });
  const timer = setTimeout(() => stop.abort("timed_out"), task.timeout_seconds * 1000);
  let result;
  try {
    const handler = handlers[task.task_type];
    const progress = (percent, message = "") =>
      call(`${me.worker_id}/progress`, { task_id, lease, percent, message }).catch(() => {});
    const value = await handler(task.parameters, { task, signal: stop.signal, progress });
    result = { status: "completed", result: value ?? null };
  } catch (error) {
    result = {
      status: "failed",
      error: {
        type: error.name,
        message: String(error.message),
        retriable: error.retriable !== false,
        traceback: error.stack,
      },
    };
  } finally {
    clearTimeout(timer);
  }
  // Why it was stopped counts for more than how the handler took it.
  if (stop.signal.aborted) result = { status: stop.signal.reason };
  if (result.status !== "lost") {
    try {
      await persist("say how a task ended", () => call(`${me.worker_id}/result`, { task_id, lease, ...result }));
      console.log(`task ${task_id} attempt ${task.attempt}: ${result.status}`);
    } catch (error) {
      console.warn(`task ${task_id} attempt ${task.attempt}: ${error.message}`);
    }
  } else {
    console.warn(`task ${task_id} attempt ${task.attempt}: its lease is lost, so there is nothing to say`);
  }
  if (running.get(task_id)?.lease === lease) running.delete(task_id);
}

async function heartbeat() {
  const answer = await call(`${me.worker_id}/heartbeat`, {
    current_load: running.size,
    status: leaving.signal.aborted ? "draining" : "active",
    running: [...running].map(([task_id, { lease }]) => ({ task_id, lease })),
  });
  for (const task_id of answer.cancel) running.get(task_id)?.stop.abort("cancelled");
  for (const task_id of answer.lost) running.get(task_id)?.stop.abort("lost");
  if (answer.should_drain) leave();
}

function leave() {
  leaving.abort();
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, leave);

await persist("register", () => (me ? Promise.resolve() : register()));
const beating = setInterval(() => {
  heartbeat().catch((error) => (error.status === 404 ? register().catch(() => {}) : undefined));
}, me.heartbeat_interval_ms);

while (!leaving.signal.aborted) {
  const available = CAPACITY - running.size;
  if (available === 0) {
    await sleep(20);
    continue;
  }
  try {
    const poll = () =>
      call(
        `${me.worker_id}/poll`,
        { available_capacity: available, wait_seconds: POLL_SECONDS },
        { signal: leaving.signal, seconds: POLL_SECONDS + 30 },
      );
    const { tasks, should_drain } = await persist("poll", poll);
    for (const task of tasks) run(task);
    if (should_drain) leave();
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

const deadline = Date.now() + DRAIN_MS;
while (running.size > 0 && Date.now() < deadline) await sleep(20);
for (const { stop } of running.values()) stop.abort("handed_back");
clearInterval(beating);
// Whatever it still holds, named here or not, waits again for another worker.
await call(`${me.worker_id}/deregister`, {}).catch((error) => console.warn(error.message));
console.log("left");
process.exit(0);

// The task types of this worker. A handler gets the parameters, and a context with the task, a signal that is aborted
// when the attempt should stop, and `progress(percent, message)`. What it returns is the result; what it throws is the
// failure, which is tried again unless it has `retriable: false`.

import { setTimeout as sleep } from "node:timers/promises";

export const handlers = {
  async add({ a, b }) {
    return { sum: a + b };
  },

  async flaky({ fails }, { task }) {
    if (task.attempt <= fails) throw new Error(`attempt ${task.attempt} fails`);
    return { attempts: task.attempt };
  },

  async reject({ reason }) {
    throw Object.assign(new Error(reason), { retriable: false });
  },

  async wait({ seconds }, { signal, progress }) {
    await progress(50, "waiting");
    await sleep(seconds * 1000, undefined, { signal });
    return "waited";
  },
};

import {
  type GroupsShown,
  PRIORITIES,
  type QueueStanding,
  type ScheduleShown,
  type Standing,
  type WorkerShown,
} from "../api/schema";
import { to } from "./base";
import { count, plural, seconds } from "./format";
import { quoted } from "./query";

/** Something that is wrong, and where to look. */
export interface Finding {
  severity: "bad" | "warning";
  text: string;
  href: string;
}

/** How long a task of each priority may wait before it is worth a word, in seconds. */
export const PATIENCE = { critical: 60, high: 300, medium: 1800, low: 7200 } as const;

const SHARE_OF_FAILURES = 0.2;
const ENOUGH_TO_JUDGE = 10;
const JOURNAL_BEHIND = 10_000;

export interface Known {
  standing: Standing;
  workers: WorkerShown[];
  schedules: ScheduleShown[];
  groups: GroupsShown | null;
}

/** What is wrong, the worst first; nothing if all is well. */
export function findings(known: Known): Finding[] {
  const found = [
    ...quarantined(known.standing),
    ...unserved(known.standing, known.workers),
    ...late(known.standing),
    ...failing(known.standing),
    ...dead(known.workers),
    ...deadLetters(known.groups),
    ...circuits(known.standing),
    ...paused(known.standing),
    ...pausedWorkers(known.workers),
    ...schedules(known.schedules),
    ...journal(known.standing),
  ];
  return found.sort(
    (one, other) => Number(one.severity === "warning") - Number(other.severity === "warning"),
  );
}

/** All of it in one sentence. */
export function verdict(found: Finding[], standing: Standing): string {
  const [first] = found;
  if (first !== undefined) {
    const more = found.length > 1 ? `, and ${plural(found.length - 1, "more problem")}` : "";
    return `${first.text}${more}.`;
  }
  const waiting = PRIORITIES.reduce((sum, priority) => sum + standing.queues[priority].depth, 0);
  const { used_capacity, total_capacity } = standing.workers;
  if (waiting === 0 && used_capacity === 0) return "All is well: no tasks are waiting.";
  return `All is well: ${plural(waiting, "task")} waiting, ${count(used_capacity)} of ${count(total_capacity)} worker slots in use.`;
}

function quarantined(standing: Standing): Finding[] {
  const kinds = Object.entries(standing.quarantined).map(([kind, size]) => `${count(size)} ${kind}`);
  if (kinds.length === 0) return [];
  return [
    {
      severity: "bad",
      text: `Records that cannot be read are in quarantine: ${kinds.sort().join(", ")}`,
      href: to`/quarantine`,
    },
  ];
}

function unserved(standing: Standing, workers: WorkerShown[]): Finding[] {
  const live = workers.filter((worker) => worker.status !== "dead");
  return Object.entries(standing.by_queue).flatMap(([name, queue]) => {
    const waiting = sum(queue.priorities);
    const serving = live.filter((worker) => worker.queues.includes(name));
    const idle =
      serving.length > 0 && !serving.some((worker) => worker.status === "active" && !worker.paused);
    // Without any, the server says so: it knows those that are just starting again.
    const whole = queue.unserved.some((kind) => kind.task_type === null);
    if (whole || (idle && waiting > 0 && !queue.paused)) {
      return [
        {
          severity: "bad" as const,
          text: `No worker serves the queue ${name}: ${plural(waiting, "task")} ${waiting === 1 ? "is" : "are"} waiting`,
          href: to`/queues/${name}`,
        },
      ];
    }
    return unrunnable(name, queue);
  });
}

/** The tasks of a queue that has workers, none of which could run them. */
function unrunnable(name: string, queue: QueueStanding): Finding[] {
  const [first] = queue.unserved;
  if (first === undefined) return [];
  const { task_type: type, missing_capabilities: missing } = first;
  const lacking = missing.length > 0 ? `has ${missing.join(" and ")}` : "has a handler for them";
  const more = queue.unserved_kinds > 1 ? `, nor run ${plural(queue.unserved_kinds - 1, "more kind")}` : "";
  const query = `state:queued queue:${quoted(name)} type:${quoted(type ?? "")}`;
  return [
    {
      severity: "bad",
      text: `${plural(first.tasks, "task")} of type ${type} in the queue ${name} cannot start, as no worker ${lacking}${more}`,
      href: `${to`/tasks`}?order=oldest&q=${encodeURIComponent(query)}`,
    },
  ];
}

function late(standing: Standing): Finding[] {
  return Object.entries(standing.by_queue).flatMap(([name, queue]) =>
    PRIORITIES.filter(
      (priority) => !queue.paused && queue.priorities[priority].oldest_age_seconds > PATIENCE[priority],
    )
      .slice(0, 1)
      .map((priority): Finding => {
        const age = seconds(queue.priorities[priority].oldest_age_seconds);
        const query = `state:queued queue:${quoted(name)} priority:${priority}`;
        return {
          severity: priority === "critical" || priority === "high" ? "bad" : "warning",
          text: `A task of ${priority} priority in the queue ${name} has waited for ${age}`,
          href: `${to`/tasks`}?order=oldest&q=${encodeURIComponent(query)}`,
        };
      }),
  );
}

function failing(standing: Standing): Finding[] {
  const { completed_last_minute: completed, failed_last_minute: failed } = standing.throughput;
  if (completed + failed < ENOUGH_TO_JUDGE || failed / (completed + failed) < SHARE_OF_FAILURES) return [];
  const text = `${count(failed)} of ${plural(completed + failed, "task")} failed within the last minute`;
  const query = "state:failed,dead_letter ended:>-5m";
  return [{ severity: "bad", text, href: `${to`/tasks`}?q=${encodeURIComponent(query)}` }];
}

function dead(workers: WorkerShown[]): Finding[] {
  const lost = workers.filter((worker) => worker.status === "dead").length;
  if (lost === 0) return [];
  return [
    {
      severity: "warning",
      text: `${plural(lost, "worker")} stopped responding within the last hour`,
      href: to`/workers`,
    },
  ];
}

function pausedWorkers(workers: WorkerShown[]): Finding[] {
  const held = workers.filter((worker) => worker.paused && worker.status === "active").length;
  if (held === 0) return [];
  return [
    {
      severity: "warning",
      text: `${plural(held, "worker")} ${held === 1 ? "is" : "are"} paused`,
      href: to`/workers`,
    },
  ];
}

function deadLetters(groups: GroupsShown | null): Finding[] {
  return (groups?.types ?? [])
    .filter((type) => type.alert)
    .map((type) => ({
      severity: "bad",
      text: `${plural(type.count, "dead letter")} of type ${type.task_type}`,
      href: `${to`/dead-letters`}?q=${encodeURIComponent(`type:${quoted(type.task_type)}`)}`,
    }));
}

function circuits(standing: Standing): Finding[] {
  return standing.circuits
    .filter((circuit) => circuit.state !== "closed")
    .map((circuit) => ({
      severity: circuit.state === "open" ? "bad" : "warning",
      text: `The circuit breaker of ${circuit.task_type} is ${circuit.state === "open" ? "open" : "half-open"}: ${count(circuit.failures)} of ${plural(circuit.outcomes, "attempt")} failed`,
      href: to`/queues`,
    }));
}

function paused(standing: Standing): Finding[] {
  const queues = Object.entries(standing.by_queue)
    .filter(([, queue]) => queue.paused)
    .map(([name, queue]): Finding => {
      const waiting = sum(queue.priorities);
      return {
        severity: "warning",
        text: queue.unreadable
          ? `The queue ${name} is paused because its settings cannot be read, with ${plural(waiting, "task")} waiting`
          : `The queue ${name} is paused with ${plural(waiting, "task")} waiting`,
        href: to`/queues/${name}`,
      };
    });
  const types = standing.paused_types.map((name): Finding => ({
    severity: "warning",
    text: `Tasks of type ${name} are paused`,
    href: to`/queues`,
  }));
  return [...queues, ...types];
}

function schedules(all: ScheduleShown[]): Finding[] {
  return all
    .filter((schedule) => schedule.failure !== null)
    .map((schedule) => ({
      severity: "bad",
      text: `The schedule ${schedule.name} could not submit its last task`,
      href: to`/schedules/${schedule.name}`,
    }));
}

function journal(standing: Standing): Finding[] {
  const behind = standing.journal_behind ?? 0;
  if (behind < JOURNAL_BEHIND) return [];
  return [
    { severity: "warning", text: `The journal is behind by ${plural(behind, "task")}`, href: to`/queues` },
  ];
}

function sum(priorities: Standing["queues"]): number {
  return PRIORITIES.reduce((total, priority) => total + priorities[priority].depth, 0);
}

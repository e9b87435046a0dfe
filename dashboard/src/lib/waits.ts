import { PRIORITIES, type Priority, type Sample, type TaskBrief } from "../api/schema";

/** How long tasks waited for a worker, in seconds. */
export interface Wait {
  count: number;
  p50: number;
  p95: number;
}

/** The waits of tasks that have started, by priority. */
export function waitsOf(tasks: TaskBrief[]): Record<Priority, Wait | null> {
  const waits = new Map<Priority, number[]>(PRIORITIES.map((priority) => [priority, []]));
  for (const task of tasks) {
    if (task.started_at === null || task.queued_at === null) continue;
    const wait = (Date.parse(task.started_at) - Date.parse(task.queued_at)) / 1000;
    waits.get(task.priority)?.push(Math.max(0, wait));
  }
  const entries = PRIORITIES.map((priority) => [priority, summary(waits.get(priority) ?? [])]);
  return Object.fromEntries(entries) as Record<Priority, Wait | null>;
}

function summary(waits: number[]): Wait | null {
  if (waits.length === 0) return null;
  const sorted = waits.toSorted((one, other) => one - other);
  return { count: sorted.length, p50: quantile(sorted, 0.5), p95: quantile(sorted, 0.95) };
}

/** The value that so large a share is at most, of values in order. */
export function quantile(sorted: number[], share: number): number {
  const place = Math.max(0, Math.ceil(sorted.length * share) - 1);
  return sorted[place] ?? 0;
}

/**
 * Tasks that came in within the minute before a sample: those that ended, and by how many more there are now.
 * Null where there is no sample from about a minute before.
 */
export function cameIn(samples: Sample[], place: number): number | null {
  const sample = samples[place];
  if (sample === undefined) return null;
  const at = Date.parse(sample.at);
  const before = samples
    .slice(0, place)
    .findLast((other) => at - Date.parse(other.at) >= 55_000 && at - Date.parse(other.at) < 90_000);
  if (before === undefined) return null;
  const ended = sample.completed_last_minute + sample.failed_last_minute;
  return Math.max(0, ended + present(sample) - present(before));
}

function present(sample: Sample): number {
  const waiting = PRIORITIES.reduce((sum, priority) => sum + sample.depths[priority], 0);
  return waiting + sample.scheduled + sample.executing;
}

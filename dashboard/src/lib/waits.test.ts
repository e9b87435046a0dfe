import { describe, expect, it } from "vitest";
import type { Priority, Sample, TaskBrief } from "../api/schema";
import { cameIn, quantile, waitsOf } from "./waits";

function task(priority: Priority, waited: number): TaskBrief {
  const queued = Date.parse("2026-11-15T12:00:00Z");
  return {
    priority,
    effective_priority: priority,
    queued_at: new Date(queued).toISOString(),
    started_at: new Date(queued + waited * 1000).toISOString(),
  } as TaskBrief;
}

describe("waits", () => {
  it("are summed up by priority", () => {
    const waits = waitsOf([
      ...Array.from({ length: 100 }, (_, index) => task("high", index + 1)),
      task("low", 7),
    ]);
    expect(waits.high).toEqual({ count: 100, p50: 50, p95: 95 });
    expect(waits.low).toEqual({ count: 1, p50: 7, p95: 7 });
    expect(waits.critical).toBeNull();
  });

  it("leave out what has not started, and are never less than nothing", () => {
    const waits = waitsOf([{ ...task("high", 1), started_at: null }, task("medium", -5)]);
    expect(waits.high).toBeNull();
    expect(waits.medium?.p50).toBe(0);
    expect(quantile([], 0.5)).toBe(0);
  });
});

describe("what came in", () => {
  const sample = (minute: number, depth: number, completed: number): Sample => ({
    at: new Date(minute * 60_000).toISOString(),
    depths: { critical: 0, high: depth, medium: 0, low: 0 },
    oldest_age_seconds: 0,
    scheduled: 0,
    executing: 1,
    dead_letters: 0,
    completed_last_minute: completed,
    failed_last_minute: 0,
    used_capacity: 0,
    total_capacity: 0,
  });

  it("is what went out and what there is more of", () => {
    expect(cameIn([sample(1, 100, 0), sample(2, 130, 50)], 1)).toBe(80);
    expect(cameIn([sample(1, 100, 0), sample(2, 0, 50)], 1)).toBe(0);
  });

  it("is not known without a sample from a minute before", () => {
    expect(cameIn([sample(1, 100, 0)], 0)).toBeNull();
    expect(cameIn([sample(1, 100, 0), sample(9, 100, 0)], 1)).toBeNull();
  });
});

import { describe, expect, it } from "vitest";
import type {
  CircuitShown,
  PriorityStanding,
  QueueStanding,
  Standing,
  UnservedShown,
  WorkerShown,
} from "../api/schema";
import { findings, verdict, type Known } from "./verdict";

const line = (depth = 0, age = 0): PriorityStanding => ({
  depth,
  oldest_age_seconds: age,
  age_p50_seconds: null,
  age_p95_seconds: null,
  ended_last_hour: 0,
  average_wait_seconds: null,
  average_duration_seconds: null,
  promotions_last_hour: 0,
  recoveries_last_hour: 0,
});

const lines = (depth: number, age = 0): QueueStanding["priorities"] => ({
  critical: line(depth, age),
  high: line(),
  medium: line(),
  low: line(),
});

const states = {
  scheduled: 0,
  queued: 0,
  executing: 0,
  completed: 0,
  failed: 0,
  dead_letter: 0,
  cancelled: 0,
};

function standing(queue: Partial<QueueStanding> = {}, more: Partial<Standing> = {}): Standing {
  const whole: QueueStanding = {
    priorities: lines(0),
    states,
    types: {},
    paused: false,
    unreadable: false,
    unserved_tasks: 0,
    unserved_kinds: 0,
    unserved: [],
    fair_keys: 0,
    waiting_by_key: {},
    waiting_of_other_keys: 0,
    ...queue,
  };
  return {
    queues: whole.priorities,
    workers: { active: 1, paused: 0, draining: 0, dead: 0, total_capacity: 8, used_capacity: 0, slots: {} },
    throughput: { completed_last_minute: 0, failed_last_minute: 0 },
    by_queue: { mail: whole },
    states,
    next_alarm: null,
    promoted_today: 0,
    journal_behind: null,
    paused_types: [],
    circuits: [],
    quarantined: {},
    ...more,
  };
}

const unserved = (more: Partial<UnservedShown> = {}): UnservedShown => ({
  task_type: null,
  required_capabilities: [],
  reason: "queue_unserved",
  missing_capabilities: [],
  tasks: 1,
  oldest_age_seconds: 0,
  text: "no worker serves it",
  ...more,
});

const worker = (more: Partial<WorkerShown> = {}): WorkerShown =>
  ({ worker_id: "w", status: "active", queues: ["mail"], ...more }) as WorkerShown;

const known = (standingNow: Standing, workers: WorkerShown[] = [worker()]): Known => ({
  standing: standingNow,
  workers,
  schedules: [],
  groups: null,
});

describe("the verdict", () => {
  it("is that all is well when it is", () => {
    const idle = standing();
    expect(findings(known(idle))).toEqual([]);
    expect(verdict([], idle)).toBe("All is well: no tasks are waiting.");
    expect(verdict([], standing({ priorities: lines(3) }))).toBe(
      "All is well: 3 tasks waiting, 0 of 8 worker slots in use.",
    );
  });

  it("names a queue that nobody serves", () => {
    const [finding] = findings(known(standing({ priorities: lines(1) }), [worker({ status: "draining" })]));
    expect(finding?.text).toBe("No worker serves the queue mail: 1 task is waiting");
    expect(finding?.href).toBe("/queues/mail");
  });

  it("names a queue without workers once the server says so, not while one starts again", () => {
    const waiting = { priorities: lines(1) };
    expect(findings(known(standing(waiting), []))).toEqual([]);
    const [finding] = findings(
      known(standing({ ...waiting, unserved: [unserved()], unserved_kinds: 1 }), []),
    );
    expect(finding?.text).toBe("No worker serves the queue mail: 1 task is waiting");
  });

  it("names what no worker could run, by type, and what is missing", () => {
    const kinds = [
      unserved({ task_type: "render", reason: "type_unknown", tasks: 3 }),
      unserved({ task_type: "mail", missing_capabilities: ["eu", "gpu"], tasks: 1 }),
    ];
    const told = (...some: UnservedShown[]) =>
      findings(known(standing({ priorities: lines(4), unserved: some, unserved_kinds: some.length })))[0];
    expect(told(...kinds)?.text).toBe(
      "3 tasks of type render in the queue mail cannot start, as no worker has a handler for them, nor run 1 more kind",
    );
    expect(decodeURIComponent(told(...kinds)?.href ?? "")).toContain("queue:mail type:render");
    expect(told(...kinds.slice(1))?.text).toBe(
      "1 task of type mail in the queue mail cannot start, as no worker has eu and gpu",
    );
  });

  it("names workers that are paused, and the queue that they leave unserved", () => {
    const held = [worker({ paused: true }), worker({ paused: true, status: "dead" })];
    const texts = findings(known(standing({ priorities: lines(1) }), held)).map((finding) => finding.text);
    expect(texts).toContain("No worker serves the queue mail: 1 task is waiting");
    expect(texts).toContain("1 worker is paused");
  });

  it("names what waits too long, and leads there", () => {
    const [finding] = findings(known(standing({ priorities: lines(2, 90) })));
    expect(finding?.text).toBe("A task of critical priority in the queue mail has waited for 1 min 30 s");
    expect(decodeURIComponent(finding?.href ?? "")).toContain("queue:mail priority:critical");
  });

  it("does not complain of a wait that somebody wanted", () => {
    const found = findings(known(standing({ priorities: lines(2, 9000), paused: true }), []));
    expect(found.map((finding) => finding.text)).toEqual(["The queue mail is paused with 2 tasks waiting"]);
  });

  it("names what was set aside first, and leads there", () => {
    const damaged = standing(
      { priorities: lines(2), paused: true, unreadable: true },
      { quarantined: { task: 2, queue: 1 } },
    );
    const found = findings(known(damaged));
    expect(found[0]).toEqual({
      severity: "bad",
      text: "Records that cannot be read are in quarantine: 1 queue, 2 task",
      href: "/quarantine",
    });
    expect(found[1]?.text).toBe(
      "The queue mail is paused because its settings cannot be read, with 2 tasks waiting",
    );
  });

  it("judges failures by their share, once there is enough to judge", () => {
    const few = standing({}, { throughput: { completed_last_minute: 0, failed_last_minute: 5 } });
    const many = standing({}, { throughput: { completed_last_minute: 30, failed_last_minute: 10 } });
    expect(findings(known(few))).toEqual([]);
    expect(findings(known(many))[0]?.text).toBe("10 of 40 tasks failed within the last minute");
  });

  it("names a circuit that holds tasks back", () => {
    const circuit = { task_type: "pay", outcomes: 20, failures: 15 } as CircuitShown;
    const found = findings(
      known(
        standing(
          {},
          {
            circuits: [
              { ...circuit, state: "half_open" },
              { ...circuit, state: "closed" },
              { ...circuit, state: "open" },
            ],
          },
        ),
      ),
    );
    expect(found.map((finding) => finding.text)).toEqual([
      "The circuit breaker of pay is open: 15 of 20 attempts failed",
      "The circuit breaker of pay is half-open: 15 of 20 attempts failed",
    ]);
  });

  it("begins with the worst and counts the rest", () => {
    const waiting = { priorities: lines(1), unserved: [unserved()], unserved_kinds: 1 };
    const bad = standing(waiting, { paused_types: ["resize"] });
    const found = findings(known(bad, [worker({ status: "dead" })]));
    expect(found.map((finding) => finding.severity)).toEqual(["bad", "warning", "warning"]);
    expect(verdict(found, bad)).toBe(
      "No worker serves the queue mail: 1 task is waiting, and 2 more problems.",
    );
  });
});

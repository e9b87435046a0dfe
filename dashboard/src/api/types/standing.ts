/** How everything stands: now, and in the samples that are kept. */
import type { Priority, State } from "./tasks";

export interface Circuit {
  task_type: string;
  state: "closed" | "open" | "half_open";
  since: string | null;
  half_opens_at: string | null;
  outcomes: number;
  failures: number;
}

export interface PriorityStanding {
  depth: number;
  oldest_age_seconds: number;
}

export interface QueueStanding {
  priorities: Record<Priority, PriorityStanding>;
  states: Record<State, number>;
  types: Record<string, number>;
  paused: boolean;
}

export interface WorkerCounts {
  active: number;
  draining: number;
  dead: number;
  total_capacity: number;
  used_capacity: number;
}

export interface Standing {
  queues: Record<Priority, PriorityStanding>;
  workers: WorkerCounts;
  throughput: { completed_last_minute: number; failed_last_minute: number };
  by_queue: Record<string, QueueStanding>;
  states: Record<State, number>;
  next_alarm: string | null;
  promoted_today: number;
  journal_behind: number | null;
  paused_types: string[];
  circuits: Circuit[];
}

/** How all queues stood at one moment. */
export interface Sample {
  at: string;
  depths: Record<Priority, number>;
  oldest_age_seconds: number;
  scheduled: number;
  executing: number;
  dead_letters: number;
  completed_last_minute: number;
  failed_last_minute: number;
  used_capacity: number;
  total_capacity: number;
}

export interface History {
  interval_seconds: number;
  samples: Sample[];
}

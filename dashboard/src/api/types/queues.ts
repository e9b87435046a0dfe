/** Queues and what is said of each alone. */
import type { Priority, State } from "./tasks";

export type Order =
  | { policy: "promote"; low_seconds: number; medium_seconds: number; high_seconds: number }
  | { policy: "strict" }
  | {
      policy: "head_start";
      critical_seconds: number;
      high_seconds: number;
      medium_seconds: number;
      low_seconds: number;
    }
  | { policy: "weighted"; critical: number; high: number; medium: number; low: number };

export interface QueueShown {
  queue: string;
  paused: boolean;
  states: Record<State, number>;
  settings: {
    bound: number | null;
    order: Order | null;
    priority: Priority | null;
    timeout_seconds: number | null;
    max_retries: number | null;
    max_crashes: number | null;
    running: number | null;
    rate: string | null;
    type_running: Record<string, number>;
    type_rate: Record<string, string>;
    key_running: number | null;
    key_rate: string | null;
  };
}

export interface QueueChange {
  bound?: number;
  running?: number;
  rate?: string;
}

export interface QueueList {
  queues: QueueShown[];
  paused_types: string[];
}

export interface PurgeNoted {
  queue: string;
  scheduled: number;
  queued: number;
  complete: boolean;
}

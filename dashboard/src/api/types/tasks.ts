/** Tasks: how they stand, what was made of them, and why they wait. */
import type { ProblemDocument } from "./problems";

export const PRIORITIES = ["critical", "high", "medium", "low"] as const;
export type Priority = (typeof PRIORITIES)[number];

export const STATES = [
  "scheduled",
  "queued",
  "executing",
  "completed",
  "failed",
  "dead_letter",
  "cancelled",
] as const;
export type State = (typeof STATES)[number];

export interface TaskError {
  type: string;
  message: string;
  traceback: string | null;
}

export interface Progress {
  percent: number;
  message: string;
  at: string;
}

export interface TaskBrief {
  task_id: string;
  task_type: string;
  queue: string;
  status: State;
  reason: string;
  priority: Priority;
  effective_priority: Priority;
  required_capabilities: string[];
  tags: string[];
  created_at: string;
  run_at: string | null;
  queued_at: string | null;
  started_at: string | null;
  completed_at: string | null;
  attempts: number;
  retry_count: number;
  max_retries: number;
  crash_count: number;
  max_crashes: number;
  timeout_seconds: number;
  assigned_worker_id: string | null;
  lease_until: string | null;
  cancel_requested: boolean;
  idempotency_key: string | null;
  tenant: string | null;
  trace_id: string | null;
  progress: Progress | null;
  error: TaskError | null;
  concurrency_key: string | null;
  /** How many of the tasks that it waits for have not ended. */
  pending: number;
  unmet: number;
  on_failure: string | null;
}

export interface Transition {
  at: string;
  status: State;
  reason: string;
  attempt: number;
  worker_id: string | null;
  error: { type: string; message: string } | null;
}

export interface TaskWhole extends TaskBrief {
  history: Transition[];
  /** The tasks that must have ended before it may run. */
  after: string[];
}

export interface TaskPage {
  tasks: TaskBrief[];
  next_cursor: string | null;
}

export interface TaskCreated {
  task_id: string;
  task_type: string;
  status: State;
  priority: Priority;
  queue: string;
}

export interface BatchAnswer {
  results: { index: number; status: number; task?: TaskCreated; problem?: ProblemDocument }[];
  accepted: number;
  rejected: number;
}

/** Why a task waits, or ran when it ran. */
export interface Explanation {
  summary: string;
  causes: { code: string; text: string; blocks: boolean }[];
  line: {
    position: number;
    ahead: number;
    exact: boolean;
    next_promotion: { at: string; to: Priority } | null;
    unpassable_from: string | null;
  } | null;
  forecast: {
    workers: number;
    free_slots: number;
    estimated_start: string | null;
    latest_start: string | null;
    assumptions: string[];
    no_estimate: string | null;
    no_latest: string | null;
  } | null;
}

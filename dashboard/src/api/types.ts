/** The shapes of the HTTP API, as docs/reference/http.md describes them. */

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

export type Role = "submit" | "read" | "work" | "admin";

export interface Session {
  name: string | null;
  roles: Role[];
  tenant: string | null;
  key_needed: boolean;
  csrf_token: string | null;
}

export interface ProblemDocument {
  type: string;
  title: string;
  status: number;
  detail: string;
  remedy?: string;
  pointer?: string;
}

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

export interface DeadLetterGroup {
  task_type: string;
  fingerprint: string;
  error_type: string;
  pattern: string;
  count: number;
  first_seen: string;
  last_seen: string;
  task_id: string;
  message: string;
}

export interface Groups {
  as_of: string;
  total: number;
  complete: boolean;
  types: { task_type: string; count: number; alert_at: number | null; alert: boolean }[];
  groups: DeadLetterGroup[];
}

export type Action = "replay" | "discard" | "cancel" | "prioritize";

export interface OperationRequest {
  action: Action;
  query: string;
  as_of?: string;
  expected?: number;
  rate?: number;
  canary?: number;
  new_priority?: Priority;
}

export interface OperationPreview {
  as_of: string;
  count: number;
  exact: boolean;
  sample: TaskBrief[];
}

export interface Operation {
  operation_id: string;
  action: Action;
  query: string;
  status: "pending" | "running" | "paused" | "cancelled" | "done";
  note: string;
  as_of: string;
  expected: number;
  exact: boolean;
  done: number;
  skipped: number;
  failed: number;
  who: string;
  rate: number | null;
  canary: number | null;
  new_priority: Priority | null;
  created_at: string;
  started_at: string | null;
  ended_at: string | null;
}

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

export interface Schedule {
  name: string;
  cron: string;
  timezone: string;
  task: { task_type: string; priority: Priority | null; queue: string; parameters: unknown };
  missed: string;
  overlap: string;
  jitter_seconds: number;
  start_at: string | null;
  end_at: string | null;
  paused: boolean;
  next_fire_at: string | null;
  last_fire_at: string | null;
  last_task_id: string | null;
  fired: number;
  failure: string | null;
}

export interface SchedulePreview {
  name: string;
  timezone: string;
  fire_times: { at: string; local: string }[];
}

export interface Worker {
  worker_id: string;
  name: string;
  status: "active" | "draining" | "dead";
  host: string;
  pid: number;
  version: string;
  queues: string[];
  capabilities: string[];
  task_types: string[] | null;
  capacity: number;
  running: number;
  since: string;
  seen_at: string;
  completed_last_minute: number;
  failed_last_minute: number;
}

export interface WorkerWhole extends Worker {
  drain_requested: boolean;
  running_tasks: TaskBrief[];
  lost_tasks: { task_id: string; lost_at: string; task: TaskBrief | null }[];
  lost_count: number;
}

/** What the event stream tells. */
export interface LiveEvent {
  type: string;
  timestamp: string;
  data: unknown;
}

export interface TaskEventData {
  task_id: string;
  task_type: string;
  queue: string;
  priority: Priority;
  status: State;
  attempt?: number;
  worker_id?: string;
}

export interface SystemMetrics {
  workers: WorkerCounts;
  throughput: { completed_last_minute: number; failed_last_minute: number };
  states: Record<State, number>;
}

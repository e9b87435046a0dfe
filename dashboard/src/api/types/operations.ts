/** Operations: one action on all the tasks that a query finds. */
import type { Priority, TaskBrief } from "./tasks";

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

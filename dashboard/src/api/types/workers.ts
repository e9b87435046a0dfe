/** Workers, and the tasks of one. */
import type { TaskBrief } from "./tasks";

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

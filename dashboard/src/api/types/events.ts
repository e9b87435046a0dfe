/** What the event stream tells. */
import type { WorkerCounts } from "./standing";
import type { Priority, State } from "./tasks";

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

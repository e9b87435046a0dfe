/** Schedules and when they fire. */
import type { Priority } from "./tasks";

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

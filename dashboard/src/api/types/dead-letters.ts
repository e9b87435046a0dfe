/** Dead letters, grouped by what they failed with. */

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

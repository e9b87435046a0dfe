/** The endpoints that the dashboard calls, one function each. Their shapes are in `types`, as docs/reference/http.md has them. */
import { parseJson, type JsonNode } from "../lib/json";
import { ask, askJson, withQuery } from "./client";
import type { Groups } from "./types/dead-letters";
import type { Operation, OperationPreview, OperationRequest } from "./types/operations";
import type { PurgeNoted, QueueChange, QueueList, QueueShown } from "./types/queues";
import type { Schedule, SchedulePreview } from "./types/schedules";
import type { Session } from "./types/session";
import type { History, Standing } from "./types/standing";
import type { BatchAnswer, Explanation, Priority, TaskBrief, TaskPage, TaskWhole } from "./types/tasks";
import type { Worker, WorkerWhole } from "./types/workers";

const V1 = "/api/v1";
const e = encodeURIComponent;

export const showSession = (): Promise<Session> => askJson("GET", `${V1}/session`);
export const logIn = (key: string): Promise<Session> => askJson("POST", `${V1}/session`, { key });
export const logOut = (): Promise<string> => ask("DELETE", `${V1}/session`);

export const showStats = (signal?: AbortSignal): Promise<Standing> =>
  askJson("GET", `${V1}/queue/stats`, undefined, signal);
export const showHistory = (signal?: AbortSignal): Promise<History> =>
  askJson("GET", `${V1}/queue/history`, undefined, signal);

export interface Listing {
  q?: string;
  status?: string;
  order?: string;
  cursor?: string | null;
  limit?: number;
}

/** One request looks at a bounded number of tasks and may find few: how many requests to make for one page. */
const ROUNDS = 5;

export async function listTasks(listing: Listing, signal?: AbortSignal): Promise<TaskPage> {
  const limit = listing.limit ?? 50;
  const tasks: TaskBrief[] = [];
  let cursor = listing.cursor ?? null;
  for (let round = 0; round < ROUNDS; round++) {
    const path = withQuery(`${V1}/tasks`, { ...listing, cursor, limit: limit - tasks.length });
    const page = await askJson<TaskPage>("GET", path, undefined, signal);
    tasks.push(...page.tasks);
    cursor = page.next_cursor;
    if (cursor === null || tasks.length >= limit) break;
  }
  return { tasks, next_cursor: cursor };
}

/** A task, and its parameters and result exactly as they were written. */
export interface TaskRead {
  task: TaskWhole;
  parameters: JsonNode;
  result: JsonNode;
}

export async function showTask(id: string, signal?: AbortSignal): Promise<TaskRead> {
  const text = await ask("GET", `${V1}/tasks/${e(id)}?include_history=true`, undefined, signal);
  const tree = parseJson(text);
  const nothing: JsonNode = { kind: "literal", text: "null" };
  const field = (name: string): JsonNode =>
    (tree.kind === "object" ? tree.entries.find(([key]) => key === name)?.[1] : undefined) ?? nothing;
  return { task: JSON.parse(text) as TaskWhole, parameters: field("parameters"), result: field("result") };
}

export const explainTask = (id: string, signal?: AbortSignal): Promise<Explanation> =>
  askJson("GET", `${V1}/tasks/${e(id)}/explain`, undefined, signal);
export const cancelTask = (id: string): Promise<unknown> => askJson("DELETE", `${V1}/tasks/${e(id)}`);
export const replayTask = (id: string): Promise<unknown> => askJson("POST", `${V1}/dlq/${e(id)}/replay`, {});
export const discardTask = (id: string): Promise<unknown> => askJson("DELETE", `${V1}/dlq/${e(id)}`);

export interface Submission {
  task_type: string;
  priority: Priority;
  parameters: Record<string, string | number>;
  tags: string[];
}

export const submitMany = (tasks: Submission[]): Promise<BatchAnswer> =>
  askJson("POST", `${V1}/tasks/batch`, { tasks });

export const showGroups = (q: string, signal?: AbortSignal): Promise<Groups> =>
  askJson("GET", withQuery(`${V1}/dlq/groups`, { q }), undefined, signal);

export const previewOperation = (request: OperationRequest): Promise<OperationPreview> =>
  askJson("POST", `${V1}/operations`, { ...request, dry_run: true });
export const beginOperation = (request: OperationRequest): Promise<Operation> =>
  askJson("POST", `${V1}/operations`, request);
export const listOperations = (signal?: AbortSignal): Promise<{ operations: Operation[] }> =>
  askJson("GET", `${V1}/operations`, undefined, signal);
export const showOperation = (id: string, signal?: AbortSignal): Promise<Operation> =>
  askJson("GET", `${V1}/operations/${e(id)}`, undefined, signal);
export const steerOperation = (id: string, how: "pause" | "resume" | "cancel"): Promise<Operation> =>
  askJson("POST", `${V1}/operations/${e(id)}/${how}`);

export const listQueues = (signal?: AbortSignal): Promise<QueueList> =>
  askJson("GET", `${V1}/queues`, undefined, signal);
export const showQueue = (name: string, signal?: AbortSignal): Promise<QueueShown> =>
  askJson("GET", `${V1}/queues/${e(name)}`, undefined, signal);
export const steerQueue = (name: string, how: "pause" | "resume"): Promise<QueueShown> =>
  askJson("POST", `${V1}/queues/${e(name)}/${how}`);
export const changeQueue = (name: string, change: QueueChange): Promise<QueueShown> =>
  askJson("PATCH", `${V1}/queues/${e(name)}`, change);
export const purgeQueue = (name: string): Promise<PurgeNoted> =>
  askJson("POST", `${V1}/queues/${e(name)}/purge`, { confirm: name });
export const steerType = (name: string, how: "pause" | "resume"): Promise<unknown> =>
  askJson("POST", `${V1}/task-types/${e(name)}/${how}`);

export const steerCircuit = (type: string, how: "open" | "close"): Promise<unknown> =>
  askJson("POST", `${V1}/task-types/${e(type)}/circuit/${how}`);

export const listSchedules = (signal?: AbortSignal): Promise<{ schedules: Schedule[] }> =>
  askJson("GET", `${V1}/schedules`, undefined, signal);
export const showSchedule = (name: string, signal?: AbortSignal): Promise<Schedule> =>
  askJson("GET", `${V1}/schedules/${e(name)}`, undefined, signal);
export const previewSchedule = (name: string, signal?: AbortSignal): Promise<SchedulePreview> =>
  askJson("GET", `${V1}/schedules/${e(name)}/preview?count=10`, undefined, signal);
export const steerSchedule = (name: string, how: "pause" | "resume"): Promise<Schedule> =>
  askJson("POST", `${V1}/schedules/${e(name)}/${how}`);
export const runSchedule = (name: string): Promise<{ task_id: string }> =>
  askJson("POST", `${V1}/schedules/${e(name)}/run`);

export const listWorkers = (signal?: AbortSignal): Promise<{ workers: Worker[] }> =>
  askJson("GET", `${V1}/workers`, undefined, signal);
export const showWorker = (id: string, signal?: AbortSignal): Promise<WorkerWhole> =>
  askJson("GET", `${V1}/workers/${e(id)}`, undefined, signal);
export const drainWorker = (id: string): Promise<Worker> => askJson("POST", `${V1}/workers/${e(id)}/drain`);

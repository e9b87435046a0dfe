/** The endpoints that the dashboard calls, one function each. `schema.ts` says what they take and answer. */
import { parseJson, type JsonNode } from "../lib/json";
import { call, callForText } from "./client";
import type {
  Endpoints,
  OperationPreview,
  OperationRequest,
  OperationShown,
  QuarantinedShown,
  QueueChange,
  SubmitRequest,
  TaskBrief,
  TaskPage,
  TaskWhole,
  Transition,
} from "./schema";

export const showSession = () => call("GET /api/v1/session", {});
export const logIn = (key: string) => call("POST /api/v1/session", { body: { key } });
export const logOut = () => call("DELETE /api/v1/session", {});

export const showStats = (signal?: AbortSignal) => call("GET /api/v1/queue/stats", {}, signal);
export const showHistory = (signal?: AbortSignal) => call("GET /api/v1/queue/history", {}, signal);

type Listing = NonNullable<Endpoints["GET /api/v1/tasks"]["request"]["query"]>;

/** One request looks at a bounded number of tasks and may find few: how many requests to make for one page. */
const ROUNDS = 5;

export async function listTasks(listing: Listing, signal?: AbortSignal): Promise<TaskPage> {
  const limit = listing.limit ?? 50;
  const tasks: TaskBrief[] = [];
  let cursor: string | null = listing.cursor ?? "";
  for (let round = 0; round < ROUNDS; round++) {
    const query: Listing = { ...listing, cursor, limit: limit - tasks.length };
    const page = await call("GET /api/v1/tasks", { query }, signal);
    tasks.push(...page.tasks);
    cursor = page.next_cursor;
    if (cursor === null || tasks.length >= limit) break;
  }
  return { tasks, next_cursor: cursor };
}

/** A task, and its parameters and result exactly as they were written. */
export interface TaskRead {
  task: TaskWhole & { history: Transition[] };
  parameters: JsonNode;
  result: JsonNode;
}

export async function showTask(id: string, signal?: AbortSignal): Promise<TaskRead> {
  const request = { path: { task_id: id }, query: { include_history: true } };
  const text = await callForText("GET /api/v1/tasks/{task_id}", request, signal);
  const tree = parseJson(text);
  const nothing: JsonNode = { kind: "literal", text: "null" };
  const field = (name: string): JsonNode =>
    (tree.kind === "object" ? tree.entries.find(([key]) => key === name)?.[1] : undefined) ?? nothing;
  return {
    task: JSON.parse(text) as TaskRead["task"],
    parameters: field("parameters"),
    result: field("result"),
  };
}

export const explainTask = (id: string, signal?: AbortSignal) =>
  call("GET /api/v1/tasks/{task_id}/explain", { path: { task_id: id } }, signal);
export const cancelTask = (id: string) => call("DELETE /api/v1/tasks/{task_id}", { path: { task_id: id } });
export const replayTask = (id: string) =>
  call("POST /api/v1/dlq/{task_id}/replay", { path: { task_id: id }, body: {} });
export const discardTask = (id: string) => call("DELETE /api/v1/dlq/{task_id}", { path: { task_id: id } });

export const submitMany = (tasks: SubmitRequest[]) => call("POST /api/v1/tasks/batch", { body: { tasks } });

export const showGroups = (q: string, signal?: AbortSignal) =>
  call("GET /api/v1/dlq/groups", { query: { q } }, signal);

/** Count what an operation would change. */
export const previewOperation = (request: OperationRequest) =>
  call("POST /api/v1/operations", { body: { ...request, dry_run: true } }) as Promise<OperationPreview>;
export const beginOperation = (request: OperationRequest) =>
  call("POST /api/v1/operations", { body: request }) as Promise<OperationShown>;
export const listOperations = (signal?: AbortSignal) => call("GET /api/v1/operations", {}, signal);
export const showOperation = (id: string, signal?: AbortSignal) =>
  call("GET /api/v1/operations/{operation_id}", { path: { operation_id: id } }, signal);
export const steerOperation = (id: string, how: "pause" | "resume" | "cancel") =>
  call(`POST /api/v1/operations/{operation_id}/${how}`, { path: { operation_id: id } });

export const listQueues = (signal?: AbortSignal) => call("GET /api/v1/queues", {}, signal);
export const showQueue = (name: string, signal?: AbortSignal) =>
  call("GET /api/v1/queues/{queue}", { path: { queue: name } }, signal);
export const steerQueue = (name: string, how: "pause" | "resume") =>
  call(`POST /api/v1/queues/{queue}/${how}`, { path: { queue: name } });
export const changeQueue = (name: string, change: QueueChange) =>
  call("PATCH /api/v1/queues/{queue}", { path: { queue: name }, body: change });
export const purgeQueue = (name: string) =>
  call("POST /api/v1/queues/{queue}/purge", { path: { queue: name }, body: { confirm: name } });
export const steerType = (name: string, how: "pause" | "resume") =>
  call(`POST /api/v1/task-types/{task_type}/${how}`, { path: { task_type: name } });

export const listTenants = (signal?: AbortSignal) => call("GET /api/v1/tenants", {}, signal);

export const steerCircuit = (type: string, how: "open" | "close") =>
  call(`POST /api/v1/task-types/{task_type}/circuit/${how}`, { path: { task_type: type } });

export const listSchedules = (signal?: AbortSignal) => call("GET /api/v1/schedules", {}, signal);
export const showSchedule = (name: string, signal?: AbortSignal) =>
  call("GET /api/v1/schedules/{schedule}", { path: { schedule: name } }, signal);
export const previewSchedule = (name: string, signal?: AbortSignal) =>
  call(
    "GET /api/v1/schedules/{schedule}/preview",
    { path: { schedule: name }, query: { count: 10 } },
    signal,
  );
export const steerSchedule = (name: string, how: "pause" | "resume") =>
  call(`POST /api/v1/schedules/{schedule}/${how}`, { path: { schedule: name } });
export const runSchedule = (name: string) =>
  call("POST /api/v1/schedules/{schedule}/run", { path: { schedule: name } });

export const listWorkers = (signal?: AbortSignal) => call("GET /api/v1/workers", {}, signal);
export const showWorker = (id: string, signal?: AbortSignal) =>
  call("GET /api/v1/workers/{worker_id}", { path: { worker_id: id } }, signal);
export const steerWorker = (id: string, how: "pause" | "resume") =>
  call(`POST /api/v1/workers/{worker_id}/${how}`, { path: { worker_id: id } });
export const drainWorker = (id: string) =>
  call("POST /api/v1/workers/{worker_id}/drain", { path: { worker_id: id } });

export const listQuarantined = (signal?: AbortSignal) => call("GET /api/v1/quarantine", {}, signal);
export const restoreQuarantined = ({ kind, name }: QuarantinedShown) =>
  call("POST /api/v1/quarantine/{kind}/{name}/restore", { path: { kind, name }, body: {} });
export const discardQuarantined = ({ kind, name }: QuarantinedShown) =>
  call("DELETE /api/v1/quarantine/{kind}/{name}", { path: { kind, name } });

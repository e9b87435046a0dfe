import * as api from "../api/calls";
import type { OperationPreview, OperationRequest, OperationShown, Priority } from "../api/schema";
import { to } from "./base";
import { dialogs, type Question } from "./dialogs.svelte";
import { plural } from "./format";

/** From so many tasks on, the number has to be typed before something is destroyed. */
export const MANY = 1000;

export type Action = OperationRequest["action"];

export interface BulkWish {
  action: Action;
  query: string;
  new_priority?: Priority;
  rate?: number;
  canary?: number;
}

const VERBS: Record<Action, string> = {
  replay: "Replay",
  discard: "Discard",
  cancel: "Cancel",
  prioritize: "Change the priority of",
};

/** The question before an operation, with the number it is about. */
export function questionOf(wish: BulkWish, preview: OperationPreview): Question {
  const many = preview.exact ? plural(preview.count, "task") : `at least ${plural(preview.count, "task")}`;
  const destroys = wish.action === "discard" || wish.action === "cancel";
  const text = [
    `The query “${wish.query.length > 200 ? `${wish.query.slice(0, 200)}…` : wish.query}” matches ${many}.`,
  ];
  const types = [...new Set(preview.sample.map((task) => task.task_type))];
  if (types.length > 0) text.push(`They include tasks of type ${types.slice(0, 5).join(", ")}.`);
  if (wish.new_priority) text.push(`Their new priority is ${wish.new_priority}.`);
  if (wish.canary)
    text.push(`The operation pauses after ${plural(wish.canary, "task")} until you resume it.`);
  if (wish.rate) text.push(`At most ${plural(wish.rate, "task")} per second.`);
  if (wish.action === "discard") text.push("Discarded tasks are deleted for good.");
  return {
    title: `${VERBS[wish.action]} ${many}?`,
    text,
    verb: `${VERBS[wish.action]} ${many}`,
    danger: destroys,
    ...(destroys && preview.count >= MANY ? { typed: String(preview.count) } : {}),
  };
}

/** Count what is meant, ask, and begin. What is meant is fixed at the moment of the count. */
export async function bulk(wish: BulkWish): Promise<OperationShown | null> {
  let begun: OperationShown | null = null;
  await dialogs.attempt(async () => {
    const preview = await api.previewOperation(wish);
    if (preview.count === 0) {
      dialogs.tell(`No matching task to ${wish.action === "prioritize" ? "change" : wish.action}.`);
      return;
    }
    if (!(await dialogs.ask(questionOf(wish, preview)))) return;
    const request: OperationRequest = { ...wish, as_of: preview.as_of };
    if (preview.exact) request.expected = preview.count;
    begun = await api.beginOperation(request);
    dialogs.tell("The operation has started.", {
      href: to`/operations/${begun.operation_id}`,
    });
  });
  return begun;
}

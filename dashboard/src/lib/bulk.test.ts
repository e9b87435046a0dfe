import { expect, it } from "vitest";
import type { OperationPreview, TaskBrief } from "../api/schema";
import { questionOf } from "./bulk";

const preview = (count: number, exact = true): OperationPreview => ({
  as_of: "2026-11-15T12:00:00Z",
  count,
  exact,
  sample: [{ task_type: "send_mail" } as TaskBrief],
});

it("says the number before it is done", () => {
  const question = questionOf({ action: "replay", query: "error:Timeout" }, preview(1284));
  expect(question.verb).toBe("Replay 1,284 tasks");
  expect(question.danger).toBe(false);
  expect(question.typed).toBeUndefined();
});

it("has the number typed before many are destroyed", () => {
  expect(questionOf({ action: "discard", query: "q" }, preview(999)).typed).toBeUndefined();
  const question = questionOf({ action: "discard", query: "q" }, preview(1000));
  expect(question.typed).toBe("1000");
  expect(question.danger).toBe(true);
});

it("does not claim to know more than was counted", () => {
  expect(questionOf({ action: "cancel", query: "q" }, preview(300_000, false)).title).toBe(
    "Cancel at least 300,000 tasks?",
  );
});

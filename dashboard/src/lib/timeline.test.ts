import { expect, it } from "vitest";
import type { Transition } from "../api/schema";
import { shareOf, stepsOf } from "./timeline";

const at = (second: number): Transition =>
  ({ at: new Date(second * 1000).toISOString(), status: "queued", reason: "submitted" }) as Transition;

it("every step lasts until the next", () => {
  const steps = stepsOf([at(0), at(9), at(10)]);
  expect(steps.map((step) => step.lasted)).toEqual([9000, 1000, null]);
  expect(steps.map((step) => shareOf(step, steps))).toEqual([90, 10, 0]);
});

it("clocks that disagree make no step shorter than nothing", () => {
  const steps = stepsOf([at(5), at(1)]);
  expect(steps[0]?.lasted).toBe(0);
  expect(steps.map((step) => shareOf(step, steps))).toEqual([0, 0]);
});

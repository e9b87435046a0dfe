import { describe, expect, it } from "vitest";
import type { TaskBrief } from "../api/schema";
import { byTurn, inLane, moved, plan, seen, type Dot } from "./burst";

const dot = (id: string, priority: Dot["priority"] = "low"): Dot => ({
  id,
  priority,
  place: "lane",
  turn: 0,
});

describe("a burst", () => {
  it("is submitted with the least urgent first", () => {
    expect(plan({ critical: 1, high: 0, medium: -3, low: 2 })).toEqual(["low", "low", "critical"]);
  });

  it("moves from its lane to its end, in turns", () => {
    let dots = [dot("a"), dot("b", "high"), dot("c")];
    dots = moved(dots, "b", "executing");
    dots = moved(dots, "a", "completed");
    dots = moved(dots, "b", "completed");
    expect(byTurn(dots, "served").map((each) => each.id)).toEqual(["b", "a"]);
    expect(inLane(dots, "low").map((each) => each.id)).toEqual(["c"]);
  });

  it("never goes back, whatever comes late", () => {
    const dots = moved(moved([dot("a")], "a", "completed"), "a", "executing");
    expect(dots[0]?.place).toBe("served");
    expect(moved(dots, "stranger", "completed")).toBe(dots);
    expect(moved(dots, "a", "queued")).toBe(dots);
  });

  it("is put right by a look at the tasks", () => {
    const task = (id: string, second: number): TaskBrief =>
      ({ task_id: id, status: "completed", started_at: new Date(second * 1000).toISOString() }) as TaskBrief;
    const dots = seen([dot("a"), dot("b"), dot("c")], [task("b", 1), task("a", 2)]);
    expect(byTurn(dots, "served").map((each) => each.id)).toEqual(["b", "a"]);
  });
});

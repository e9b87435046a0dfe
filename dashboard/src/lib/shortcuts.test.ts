import { expect, it } from "vitest";
import { HELP, Shortcuts } from "./shortcuts";

it("a letter after g goes to a page, if it comes soon", () => {
  const keys = new Shortcuts();
  expect(keys.press("g", 0)).toBeNull();
  expect(keys.press("t", 500)).toEqual({ kind: "go", path: "tasks" });
  expect(keys.press("t", 600)).toEqual({ kind: "theme" });
  expect(keys.press("g", 1000)).toBeNull();
  expect(keys.press("t", 9000)).toEqual({ kind: "theme" });
  expect(keys.press("g", 10_000)).toBeNull();
  expect(keys.press("z", 10_001)).toBeNull();
  expect(keys.press("z", 10_002)).toBeNull();
});

it("single keys search, help and move", () => {
  const keys = new Shortcuts();
  expect(keys.press("/", 0)).toEqual({ kind: "search" });
  expect(keys.press("?", 0)).toEqual({ kind: "help" });
  expect(keys.press("j", 0)).toEqual({ kind: "row", step: 1 });
  expect(HELP.map(([key]) => key)).toContain("g t");
});

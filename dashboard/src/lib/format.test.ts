import { describe, expect, it } from "vitest";
import { between, compact, plural, relative, shortId, span, words } from "./format";

const NOW = Date.parse("2026-11-15T12:00:00Z");

describe("times", () => {
  it.each([
    [0, "0 ms"],
    [999, "999 ms"],
    [1500, "1.5 s"],
    [9999, "10 s"],
    [59_999, "59 s"],
    [61_000, "1 min 1 s"],
    [20 * 60_000 + 5_000, "20 min"],
    [3_600_000, "1 h"],
    [3 * 86_400_000 + 7_200_000, "3 d 2 h"],
    [-5, "0 ms"],
  ])("a span of %d ms is %s", (length, text) => expect(span(length)).toBe(text));

  it("are told from now", () => {
    expect(relative("2026-11-15T11:59:00Z", NOW)).toBe("1 min ago");
    expect(relative("2026-11-15T12:00:30Z", NOW)).toBe("in 30 s");
    expect(relative("2026-11-15T12:00:01Z", NOW)).toBe("now");
    expect(relative("nonsense", NOW)).toBe("");
  });

  it("never last less than nothing", () => {
    expect(between("2026-11-15T12:00:05Z", null, NOW)).toBe("0 ms");
    expect(between("2026-11-15T11:00:00Z", "2026-11-15T11:00:02Z", NOW)).toBe("2 s");
  });
});

describe("numbers and names", () => {
  it("are short where there is little room", () => {
    expect(compact(9999)).toBe("9,999");
    expect(compact(1_234_567)).toBe("1.2M");
    expect(plural(1, "task")).toBe("1 task");
    expect(plural(1200, "task")).toBe("1,200 tasks");
    expect(words("dead_letter")).toBe("dead letter");
    expect(shortId("019a85f3c2d08000a3d25f1e9c7b4a60")).toBe("019a85…7b4a60");
    expect(shortId("short")).toBe("short");
  });
});

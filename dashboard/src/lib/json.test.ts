import { describe, expect, it } from "vitest";
import { isNothing, parseJson, textOf } from "./json";

describe("a tree of JSON", () => {
  it("keeps what JSON.parse would change", () => {
    const text = '{"big": 9007199254740993123, "precise": 1.10, "twice": 1, "twice": 2, "": null}';
    const tree = parseJson(text);
    expect(tree.kind).toBe("object");
    expect(textOf(tree).replace(/\s+/g, " ")).toBe(
      '{ "big": 9007199254740993123, "precise": 1.10, "twice": 1, "twice": 2, "": null }',
    );
  });

  it("reads escapes, nesting and emptiness", () => {
    const value = { a: [], b: {}, c: ["\u0000<b>", '"\\', "ü😀", [true, false, null, -1e-7]] };
    expect(JSON.parse(textOf(parseJson(JSON.stringify(value))))).toEqual(value);
  });

  it.each(["", "{", "[1,]", '{"a"}', "nul", "1 2", '"\u0001', "{]"])("refuses %j", (text) => {
    expect(() => parseJson(text)).toThrow(SyntaxError);
  });

  it("refuses what is nested beyond reason instead of failing in odd ways", () => {
    expect(() => parseJson("[".repeat(100_000))).toThrow(/deeper/);
  });

  it("knows nothing when it sees it", () => {
    expect(isNothing(parseJson("null"))).toBe(true);
    expect(isNothing(parseJson("0"))).toBe(false);
  });
});

import { describe, expect, it } from "vitest";
import { addressOf } from "./client";

describe("the address of a request", () => {
  it("has the values of its path, encoded", () => {
    expect(addressOf("/quarantine/{kind}/{name}", { kind: "task", name: "a/b c" })).toBe(
      "/quarantine/task/a%2Fb%20c",
    );
  });

  it("has the parameters that are not empty", () => {
    expect(addressOf("/tasks", {}, { q: "a&b", limit: 0, cursor: "", status: undefined })).toBe(
      "/tasks?q=a%26b&limit=0",
    );
    expect(addressOf("/tasks", {}, { cursor: "" })).toBe("/tasks");
  });
});

import { expect, it } from "vitest";
import { orderInWords } from "./order";

it("every order of service has words", () => {
  const promote = orderInWords({
    policy: "promote",
    low_seconds: 600,
    medium_seconds: 1200,
    high_seconds: 1800,
    share: "critical",
  });
  expect(promote[4]).toContain("Among critical tasks");
  expect(promote[1]).toBe("A low task is treated as medium after 10 min.");
  expect(orderInWords({ policy: "strict" }).join(" ")).toContain("Tasks are never promoted");
  const start = {
    policy: "head_start",
    critical_seconds: 60,
    high_seconds: 30,
    medium_seconds: 10,
    low_seconds: 0,
  };
  expect(orderInWords({ ...start, policy: "head_start" })[1]).toContain("Head start: critical 1 min");
  expect(orderInWords({ policy: "weighted", critical: 8, high: 4, medium: 2, low: 2 })[1]).toContain(
    "critical 50 %, high 25 %",
  );
});

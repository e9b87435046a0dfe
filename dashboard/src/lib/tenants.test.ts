import { expect, it } from "vitest";
import type { QueueSharesShown, TenantShown } from "../api/schema";
import { keysInWords, partInWords, waitingOf } from "./tenants";

const shares = (shared_by: string): QueueSharesShown => ({
  queue: "mail",
  shared_by,
  keys: 1,
  tenants: [],
  waiting_of_others: 0,
});
const named = (key: string) => ({ key }) as TenantShown;

it("what waits of a key is a query, where one can name it", () => {
  const mail = "state:queued,scheduled queue:mail";
  expect(waitingOf(shares("tenant"), named("acme"))).toBe(`${mail} tenant:acme`);
  expect(waitingOf(shares("type"), named("send mail"))).toBe(`${mail} type:"send mail"`);
  expect(waitingOf(shares("tag:customer"), named("7"))).toBe(`${mail} tag:customer:7`);
  expect(waitingOf(shares("parameter:account"), named("7"))).toBe(null);
});

it("keys have the name of what they are", () => {
  expect(["tenant", "type", "tag:customer"].map(keysInWords)).toEqual([
    "tenants",
    "task types",
    "values of tag customer",
  ]);
});

it("a part of the turns is a percentage, if the key has any", () => {
  expect([null, 0.2, 0.004, 1].map(partInWords)).toEqual(["–", "20 %", "< 1 %", "100 %"]);
});

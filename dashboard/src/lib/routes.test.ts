import { expect, it } from "vitest";
import { PAGES, routeOf } from "./routes";

it.each([
  ["/", "", { page: "overview", id: null }],
  ["/fairlead", "/fairlead", { page: "overview", id: null }],
  ["/fairlead/", "/fairlead", { page: "overview", id: null }],
  ["/tasks", "", { page: "tasks", id: null }],
  ["/fairlead/tasks/019a", "/fairlead", { page: "tasks", id: "019a" }],
  ["/queues/a%2Fb%3Cc%3E", "", { page: "queues", id: "a/b<c>" }],
  ["/queues/%zz", "", { page: "queues", id: "%zz" }],
  ["/try/more", "", { page: null, id: null }],
  ["/tasks/a/b", "", { page: null, id: null }],
  ["/nowhere", "", { page: null, id: null }],
])("%s leads where it should", (path, base, route) => expect(routeOf(path, base)).toEqual(route));

it("every page has a key of its own", () => {
  expect(new Set(PAGES.map((page) => page.key)).size).toBe(PAGES.length);
});

/** The pages and their addresses. */
export const PAGES = [
  { name: "overview", path: "", title: "Overview", key: "o" },
  { name: "tasks", path: "tasks", title: "Tasks", key: "t" },
  { name: "dead-letters", path: "dead-letters", title: "Dead letters", key: "d" },
  { name: "queues", path: "queues", title: "Queues", key: "q" },
  { name: "tenants", path: "tenants", title: "Tenants", key: "e" },
  { name: "schedules", path: "schedules", title: "Schedules", key: "s" },
  { name: "workers", path: "workers", title: "Workers", key: "w" },
  { name: "quarantine", path: "quarantine", title: "Quarantine", key: "u" },
  { name: "operations", path: "operations", title: "Operations", key: "a" },
  { name: "try", path: "try", title: "Try it", key: "y" },
] as const;

export type PageName = (typeof PAGES)[number]["name"];

export interface Route {
  /** Null for an address that leads nowhere. */
  page: PageName | null;
  /** What of that page: a task, a queue. */
  id: string | null;
}

const WITH_ID = new Set<PageName>(["tasks", "queues", "schedules", "workers", "operations"]);

/** Where an address leads, below the server's own. */
export function routeOf(pathname: string, base: string): Route {
  const below = pathname.startsWith(base) ? pathname.slice(base.length) : pathname;
  const [first = "", second, ...more] = below.split("/").slice(1);
  const page = PAGES.find((each) => each.path === first)?.name ?? null;
  if (page === null || more.length > 0 || (second && !WITH_ID.has(page))) return { page: null, id: null };
  return { page, id: second ? decoded(second) : null };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

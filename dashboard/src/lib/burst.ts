import { PRIORITIES, type Priority, type State, type TaskBrief } from "../api/schema";

/** A task of a burst, as the picture shows it. */
export interface Dot {
  id: string;
  priority: Priority;
  place: "lane" | "running" | "served";
  /** When its first attempt began, in the order of all; 0 before. */
  turn: number;
}

const RUNNING = new Set<State>(["executing"]);
const SERVED = new Set<State>(["completed", "failed", "dead_letter", "cancelled"]);

/** The dots after a task came to a state. A dot never goes back: news may come late and twice. */
export function moved(dots: Dot[], id: string, state: State): Dot[] {
  const place = dots.findIndex((dot) => dot.id === id);
  const dot = dots[place];
  if (dot === undefined || dot.place === "served") return dots;
  const next = SERVED.has(state) ? "served" : RUNNING.has(state) ? "running" : dot.place;
  if (next === dot.place) return dots;
  const turn = dot.turn || Math.max(0, ...dots.map((each) => each.turn)) + 1;
  return dots.with(place, { ...dot, place: next, turn });
}

/** The dots after a look at the tasks themselves, in the order in which they began. */
export function seen(dots: Dot[], tasks: TaskBrief[]): Dot[] {
  const begun = tasks
    .filter((task) => task.started_at !== null)
    .toSorted((one, other) => Date.parse(one.started_at ?? "") - Date.parse(other.started_at ?? ""));
  return begun.reduce((all, task) => moved(all, task.task_id, task.status), dots);
}

export const inLane = (dots: Dot[], priority: Priority): Dot[] =>
  dots.filter((dot) => dot.place === "lane" && dot.priority === priority);

/** Those that had their turn, in its order. */
export const byTurn = (dots: Dot[], place: Dot["place"]): Dot[] =>
  dots.filter((dot) => dot.place === place).toSorted((one, other) => one.turn - other.turn);

/** What to submit, the least urgent first, so that order of service and of submit differ. */
export function plan(counts: Record<Priority, number>): Priority[] {
  return PRIORITIES.toReversed().flatMap((priority) =>
    Array<Priority>(Math.max(0, counts[priority])).fill(priority),
  );
}

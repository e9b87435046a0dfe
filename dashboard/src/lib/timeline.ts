import type { Transition } from "../api/schema";

/** A transition, and how long the task then stayed like that. */
export interface Step extends Transition {
  /** In milliseconds; null for the state it is in now. */
  lasted: number | null;
}

/** The transitions of a task with their lengths, the oldest first. */
export function stepsOf(history: Transition[]): Step[] {
  return history.map((transition, place) => {
    const next = history[place + 1];
    const lasted = next ? Math.max(0, Date.parse(next.at) - Date.parse(transition.at)) : null;
    return { ...transition, lasted };
  });
}

/** A step's share of the whole time, for a bar; what is short is still visible. */
export function shareOf(step: Step, steps: Step[]): number {
  const total = steps.reduce((sum, each) => sum + (each.lasted ?? 0), 0);
  return total === 0 || step.lasted === null ? 0 : Math.max(1, Math.round((100 * step.lasted) / total));
}

import { untrack } from "svelte";
import { Problem } from "../api/client";
import { connection } from "./live.svelte";
import { viewer } from "./session.svelte";

const SOON = 150;

export interface Resource<T> {
  /** What was last read; kept while it is read anew, and while it cannot be. */
  readonly value: T | null;
  readonly problem: Problem | null;
  /** Whether what is shown may be old: it could not be read again. */
  readonly stale: boolean;
  /** Read it again: at once, or, for hints that come in swarms, a little later. */
  refresh(): Promise<void>;
  hint(): void;
}

/**
 * Something to read from the server, read again every `every` milliseconds and when a lost connection is back.
 * `read` is called in an effect: when what it looked at changes, it is called again.
 */
export function resource<T>(
  read: (signal: AbortSignal) => Promise<T>,
  { every = 5000, take }: { every?: number; take?: (value: T) => void } = {},
): Resource<T> {
  let value = $state.raw<T | null>(null);
  let problem = $state.raw<Problem | null>(null);
  let running: AbortController | null = null;
  let hinted: ReturnType<typeof setTimeout> | undefined;

  async function refresh(): Promise<void> {
    running?.abort();
    const controller = (running = new AbortController());
    try {
      const read_ = await read(controller.signal);
      if (controller.signal.aborted) return;
      if (take) untrack(() => take(read_));
      value = read_;
      problem = null;
    } catch (error) {
      if (controller.signal.aborted) return;
      if (!(error instanceof Problem)) throw error;
      problem = error;
      if (error.status === 401) void viewer.refresh();
    } finally {
      if (running === controller) running = null;
    }
  }

  $effect(() => {
    void connection.recovered;
    void refresh();
    const timer = setInterval(() => {
      if (!document.hidden && running === null) untrack(() => void refresh());
    }, every);
    const back = (): void => {
      if (!document.hidden) untrack(() => void refresh());
    };
    document.addEventListener("visibilitychange", back);
    return () => {
      clearInterval(timer);
      clearTimeout(hinted);
      document.removeEventListener("visibilitychange", back);
      running?.abort();
    };
  });

  return {
    get value() {
      return value;
    },
    get problem() {
      return problem;
    },
    get stale() {
      return problem !== null && value !== null;
    },
    refresh: () => untrack(refresh),
    hint() {
      clearTimeout(hinted);
      hinted = setTimeout(() => untrack(() => void refresh()), SOON);
    },
  };
}

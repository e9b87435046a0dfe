import { PAGES } from "./routes";

/** What a key press means. */
export type Deed =
  | { kind: "search" }
  | { kind: "help" }
  | { kind: "theme" }
  | { kind: "go"; path: string }
  | { kind: "row"; step: 1 | -1 }
  | { kind: "open" }
  | { kind: "select" };

/** How long a `g` waits for the letter after it, in milliseconds. */
const SEQUENCE = 1500;

const SINGLE: Record<string, Deed> = {
  "/": { kind: "search" },
  "?": { kind: "help" },
  t: { kind: "theme" },
  j: { kind: "row", step: 1 },
  k: { kind: "row", step: -1 },
  o: { kind: "open" },
  x: { kind: "select" },
};

/** Understands keys, one after the other. */
export class Shortcuts {
  private leaderAt = -Infinity;

  /** What this key means at this moment; null for nothing. */
  press(key: string, now: number): Deed | null {
    if (now - this.leaderAt < SEQUENCE) {
      this.leaderAt = -Infinity;
      const page = PAGES.find((each) => each.key === key);
      return page ? { kind: "go", path: page.path } : null;
    }
    if (key === "g") {
      this.leaderAt = now;
      return null;
    }
    return SINGLE[key] ?? null;
  }
}

/** Whether the reader is writing, so that keys mean letters. */
export function isWriting(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input, textarea, select, [role=textbox]"))
  );
}

export const HELP: [keys: string, meaning: string][] = [
  ["/", "Search tasks"],
  ["?", "Show this help"],
  ["t", "Switch between light and dark"],
  ["j, k", "Next or previous row"],
  ["o", "Open the row"],
  ["x", "Select the row"],
  ...PAGES.map((page): [string, string] => [`g ${page.key}`, page.title]),
];

/** Numbers and times in words. */

const COUNT = new Intl.NumberFormat("en");
const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const EXACT = new Intl.DateTimeFormat("en-GB", {
  dateStyle: "medium",
  timeStyle: "long",
});
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

export const count = (number: number): string => COUNT.format(number);

/** A number for a small place. */
export const compact = (number: number): string =>
  Math.abs(number) < 10_000 ? count(number) : COMPACT.format(number);

export const exact = (moment: string): string => `${EXACT.format(new Date(moment))} (${moment})`;

export const clock = (moment: number): string => CLOCK.format(moment);

/** How far a moment is from now. */
export function relative(moment: string, now: number): string {
  const away = Date.parse(moment) - now;
  if (Number.isNaN(away)) return "";
  if (Math.abs(away) < 1500) return "now";
  return away < 0 ? `${span(-away)} ago` : `in ${span(away)}`;
}

/** A length of time in milliseconds, in its largest unit or two. */
export function span(milliseconds: number): string {
  const length = Math.max(0, milliseconds);
  if (length < SECOND) return `${Math.round(length)} ms`;
  if (length < 10 * SECOND) return `${(length / SECOND).toFixed(1).replace(/\.0$/, "")} s`;
  if (length < MINUTE) return `${Math.floor(length / SECOND)} s`;
  if (length < HOUR) return two(length, MINUTE, "min", SECOND, "s", 10);
  if (length < DAY) return two(length, HOUR, "h", MINUTE, "min", 10);
  return two(length, DAY, "d", HOUR, "h", 10);
}

function two(
  length: number,
  large: number,
  name: string,
  small: number,
  smallName: string,
  until: number,
): string {
  const whole = Math.floor(length / large);
  const rest = Math.floor((length % large) / small);
  return rest > 0 && whole < until ? `${whole} ${name} ${rest} ${smallName}` : `${whole} ${name}`;
}

export const seconds = (number: number): string => span(number * SECOND);

/** The time between two moments; the later one may be now. */
export function between(from: string, until: string | null, now: number): string {
  return span((until === null ? now : Date.parse(until)) - Date.parse(from));
}

/** `1 task`, `2 tasks`. */
export const plural = (number: number, word: string): string =>
  `${count(number)} ${word}${number === 1 ? "" : "s"}`;

/** A word of the API as people read it. */
export const words = (name: string): string => name.replaceAll("_", " ");

/** An id, short enough for a table. Its end tells it from its neighbours: the beginning is the time. */
export const shortId = (id: string): string => (id.length > 14 ? `${id.slice(0, 6)}…${id.slice(-6)}` : id);

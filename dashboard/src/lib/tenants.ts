import type { QueueSharesShown, TenantShown } from "../api/schema";
import { quoted } from "./query";

/** What the keys of a queue are called, by what it is shared by. */
export function keysInWords(by: string): string {
  if (by === "tenant") return "tenants";
  return by === "type" ? "task types" : `values of ${by.replace(":", " ")}`;
}

/** The query that means what waits of a key in a queue; null where no query can name it. */
export function waitingOf(shares: QueueSharesShown, tenant: TenantShown): string | null {
  const [kind, ...name] = shares.shared_by.split(":");
  const where = `state:queued,scheduled queue:${quoted(shares.queue)}`;
  if (kind === "tenant" || kind === "type") return `${where} ${kind}:${quoted(tenant.key)}`;
  if (kind === "tag") return `${where} tag:${quoted(`${name.join(":")}:${tenant.key}`)}`;
  return null;
}

/** Which part of the turns a key has, in percent; a dash if none of its tasks waits. */
export function partInWords(part: number | null): string {
  if (part === null) return "–";
  return part > 0 && part < 0.01 ? "< 1 %" : `${Math.round(part * 100)} %`;
}

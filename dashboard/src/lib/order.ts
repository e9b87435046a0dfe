import type { QueueOwnSettings } from "../api/schema";
import { seconds } from "./format";

export type Order = NonNullable<QueueOwnSettings["order"]>;

/** What an order of service means, a sentence each. */
export function orderInWords(shown: Order): string[] {
  // Only a request may leave fields out: an answer has them all.
  const order = shown as Required<Order>;
  switch (order.policy) {
    case "promote":
      return [
        "The most urgent first, and within a priority the one that has waited longest.",
        `A low task is treated as medium after ${seconds(order.low_seconds)}.`,
        `After ${seconds(order.medium_seconds)} more it is treated as high.`,
        `After ${seconds(order.high_seconds)} more it is treated as critical.`,
        order.share === "all"
          ? "Promoted tasks take turns with those of the priority they have come to: one start of four is theirs."
          : "Among critical tasks, promoted ones take turns with the others: one start of four is theirs.",
      ];
    case "strict":
      return [
        "The most urgent first, and within a priority the one that has waited longest.",
        "Tasks are never promoted: a low task waits as long as any more urgent task waits.",
      ];
    case "head_start":
      return [
        "One line for all priorities, ordered by arrival; more urgent tasks get a head start.",
        `Head start: critical ${seconds(order.critical_seconds)}, high ${seconds(order.high_seconds)}, medium ${seconds(order.medium_seconds)}, low ${seconds(order.low_seconds)}.`,
      ];
    case "weighted": {
      const total = order.critical + order.high + order.medium + order.low;
      const share = (weight: number): string => `${Math.round((100 * weight) / total)} %`;
      return [
        "Each turn picks the priority to serve at random, by weight, so that every priority gets its share.",
        `While every priority has tasks, the shares are: critical ${share(order.critical)}, high ${share(order.high)}, medium ${share(order.medium)}, low ${share(order.low)}.`,
      ];
    }
  }
}

import type { Order } from "../api/types/queues";
import { seconds } from "./format";

/** What an order of service means, a sentence each. */
export function orderInWords(order: Order): string[] {
  switch (order.policy) {
    case "promote":
      return [
        "The most urgent first, and within a priority the one that has waited longest.",
        `A low task is treated as medium after ${seconds(order.low_seconds)}.`,
        `One treated as medium is treated as high after ${seconds(order.medium_seconds)} more.`,
        `One treated as high is treated as critical after ${seconds(order.high_seconds)} more; from then on nothing queued later can pass it.`,
      ];
    case "strict":
      return [
        "The most urgent first, and within a priority the one that has waited longest.",
        "Nothing is promoted: a low task waits for as long as anything more urgent does.",
      ];
    case "head_start":
      return [
        "One line for all priorities: the more urgent a task, the earlier it counts as having come.",
        `Critical tasks stand ${seconds(order.critical_seconds)} ahead, high ${seconds(order.high_seconds)}, medium ${seconds(order.medium_seconds)}, low ${seconds(order.low_seconds)}.`,
      ];
    case "weighted": {
      const total = order.critical + order.high + order.medium + order.low;
      const share = (weight: number): string => `${Math.round((100 * weight) / total)} %`;
      return [
        "Each turn draws by weight which priority is looked at first, so none ever waits for nothing.",
        `While all have tasks, of the turns critical gets ${share(order.critical)}, high ${share(order.high)}, medium ${share(order.medium)}, low ${share(order.low)}.`,
      ];
    }
  }
}

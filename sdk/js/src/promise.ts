/**
 * What the terms promise about the messages of one device, and what they do not cover, for the person who uses it.
 *
 * A file of its own in the bundle, loaded when somebody asks; it therefore imports nothing.
 */

import type { Terms } from "./terms.js";

/** A promise; an infinite ε is null. */
export interface Promised {
  readonly mechanism: string;
  /** ε of one interaction, of one message, and of all messages that the terms allow, in nats. */
  readonly epsilonInteraction: number | null;
  readonly epsilonMessage: number | null;
  readonly epsilonLife: number | null;
  readonly interactionsPerMessage: number;
  readonly words: string;
  readonly notCovered: readonly string[];
}

/**
 * The promise of a hub's terms.
 *
 * @param epsilons Of one interaction, one message, and all messages that the terms allow; null where it is infinite.
 */
export function promise(terms: Terms, [one, message, life]: readonly (number | null)[]): Promised {
  const bare = one === null || message === null;
  const short = (x: number) => Number(x.toPrecision(4));
  let words = "Every reward is sent as it is: there is no differential privacy.";
  if (!bare) {
    const how =
      terms.mechanism === "laplace"
        ? "noise is added to each of two sums of rewards"
        : terms.mechanism === "randomised-response"
          ? `a reward is replaced, with probability ${short(1 - terms.p)}, by another of its values`
          : "the difference between two rankers becomes a number, drawn so that each is nearly as likely whatever " +
            "the user did";
    words =
      `Before anything leaves this device, ${how}. No message becomes more than e^ε times as likely, whatever one ` +
      `search was with ε = ${short(one)}, whatever all of them were with ε = ${short(message)}. ` +
      "The ε of all messages add up.";
  }
  return {
    mechanism: bare ? "none" : terms.mechanism,
    epsilonInteraction: one,
    epsilonMessage: message,
    epsilonLife: life,
    interactionsPerMessage: terms.interactions,
    words: `${words} A message tells about ${terms.interactions} searches.`,
    notCovered: [
      ...(bare ? ["The rewards: they are sent as they are."] : []),
      "The seed: it is drawn without looking at any data, and says nothing about the person; no ε says so.",
      "That this device takes part, when it sends, and its address in the network.",
      "What somebody learns who can foresee the random numbers of this browser.",
      "What the page that this runs in, the browser, or its extensions send by themselves.",
    ],
  };
}

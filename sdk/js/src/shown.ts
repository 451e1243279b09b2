/**
 * What the person who uses a device can be shown: what was sent, what the terms promise, and what they do not cover.
 *
 * A file of its own in the bundle, loaded when somebody asks; it therefore imports nothing.
 */

import type { Kept } from "./kept.js";
import type { Terms } from "./terms.js";

const NONE_YET = "sent, no answer yet";

/** One message that left the device, or may have left. */
export interface LedgerRow {
  /** Time of the first attempt by the device's clock: UTC, ISO 8601. */
  readonly when: string;
  readonly round: number;
  /** Bytes of the message, without what the transport adds. */
  readonly bytes: number;
  /** ε of the message, in nats; infinite where nothing was promised. */
  readonly epsilon: number;
  /** Sum of the ε of this and all earlier messages. */
  readonly total: number;
  /** The numbers that were sent and their meaning. */
  readonly words: string;
  readonly outcome: string;
}

/** All messages that left or may have left, oldest first. */
export function ledger(kept: Kept): LedgerRow[] {
  let total = kept.erased;
  return kept.messages
    .filter(({ sent }) => sent !== null)
    .map(({ sent, round, body, epsilon, words, outcome }) => ({
      when: new Date(sent!).toISOString(),
      round,
      bytes: body.length,
      epsilon,
      total: (total += epsilon),
      words,
      outcome: outcome ?? NONE_YET,
    }));
}

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

/**
 * What the person who uses a device can be shown: what was sent, what the terms promise, and what they do not cover.
 */

import type { Kept } from "./kept.js";
import type { Memory } from "./memory.js";
import type { changes, epsilons, Limits, Terms } from "./terms.js";

const NONE_YET = "sent, no answer yet";

const timeOf = (milliseconds?: number | null) => (milliseconds ? new Date(milliseconds).toISOString() : null);

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

/** The numbers of a message and what each of them is, for the person whose message it is. */
function inWords(body: Uint8Array, unit: number): string {
  const view = new DataView(body.buffer, body.byteOffset, body.length);
  const kind = body[0] & 31;
  const width = kind === 5 || kind === 7 ? 1 : (body.length - 5) / 2;
  const numbers = [];
  for (let at = 5; at < body.length; at += width) {
    let number = kind === 4 ? view.getInt32(at, true) : 0;
    for (let i = 0; i < width && kind !== 4; i++) number += body[at + i] * 256 ** i;
    numbers.push(number);
  }
  const check = kind === 6 || kind === 7;
  const both = check ? "the newest model and the best one" : "θ + σv and θ − σv";
  return (
    `${view.getUint32(1, true)}: ` +
    (check ? "names the model that the newest was compared with; " : "seed of the perturbation that was tried; ") +
    (width === 1
      ? `${numbers}: private number, one of ${unit}, about the difference of ${both}.`
      : `${numbers.join(" and ")}: privatised sums of rewards under ${both}, in units of 1/${unit}.`)
  );
}

/** All messages that left or may have left, oldest first. */
export function ledger(kept: Kept): LedgerRow[] {
  let total = kept.erased;
  return kept.messages
    .filter(({ sent }) => sent !== null)
    .map(({ sent, round, body, epsilon, outcome, ...message }) => ({
      when: timeOf(sent)!,
      round,
      bytes: body.length,
      epsilon,
      total: (total += epsilon),
      words: (message as { words?: string }).words ?? inWords(body, message.unit), // earlier versions kept them
      outcome: outcome ?? NONE_YET,
    }));
}

const finite = (x: number): number | null => (x < Infinity ? x : null);

/** Who could put messages of a device together; empty where the hub can. */
function channel(terms: Terms, relayed: boolean): string {
  if (!terms.tokens) return "";
  const words =
    " A message is shown with a token that this device bought blindly: the hub cannot tell whose it is, nor which " +
    "messages are of one device.";
  if (!relayed) return words;
  return (
    `${words} Everything goes through a relay, which sees this device's address and nothing inside; the hub sees what ` +
    `is inside and no address. At least ${terms.batch} reports are passed on together. Relay and hub must not tell ` +
    "each other what they see."
  );
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
 * @param epsilons Of one interaction, one message, and all messages that the terms allow.
 * @param relayed Whether messages go through a relay.
 */
export function promise(terms: Terms, epsilons: readonly number[], relayed: boolean): Promised {
  const [one, message, life] = epsilons.map(finite);
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
    words: `${words} A message tells about ${terms.interactions} searches.${channel(terms, relayed)}`,
    notCovered: [
      ...(bare ? ["The rewards: they are sent as they are."] : []),
      "The seed, which is drawn without looking at any data.",
      terms.tokens
        ? relayed
          ? "That this device takes part, and when it sends."
          : "That this device takes part, when it sends, and which messages come from one network address."
        : "That this device takes part, when it sends, its network address, and which messages are its own.",
      "What was sent before this site's data was deleted, if it ever was: nothing here can know of it.",
      "What is learnt by foreseeing the random numbers of this browser.",
      "What the page, the browser or its extensions send by themselves.",
    ],
  };
}

/** The guarantee and what was spent of it; an infinite ε is null. */
export interface Privacy {
  /** Null: the hub's terms are not known yet. */
  readonly promise: Promised | null;
  readonly messages: number;
  readonly epsilonTotal: number | null;
  readonly mostEpsilon: number | null;
  readonly mostSearchEpsilon: number | null;
  readonly lifetimeEpsilon: number | null;
  readonly optedOut: boolean;
  /** Why nothing is sent; empty if messages may be sent. */
  readonly silent: string;
  readonly lasting: boolean;
  /** The browser promised not to delete the store by itself. */
  readonly persisted: boolean;
  /**
   * When the record was begun, by the device's clock: UTC, ISO 8601; null: an earlier version began it. What a record
   * that was deleted had spent before, the sum may not have.
   */
  readonly since: string | null;
  /** When the hub was put back from a backup, in seconds since 1970. */
  readonly putBack: readonly number[];
  readonly discarded: { readonly interactions: number; readonly messages: number };
}

/** What a device can say about privacy; of its terms the ε of an interaction, a message and all messages. */
export function privacy(
  memory: Memory,
  kept: Kept,
  spent: number,
  epsilons: readonly number[] | null,
): Omit<Privacy, "persisted"> {
  const { terms, limits, relayed } = memory;
  const most = Object.entries(limits).map(([name, most]) => [name, finite(most)]);
  return {
    promise: terms && epsilons && promise(terms, epsilons, relayed),
    messages: kept.messages.filter(({ sent }) => sent !== null).length,
    epsilonTotal: finite(spent),
    ...(Object.fromEntries(most) as Record<keyof Limits, number | null>),
    optedOut: memory.out,
    silent: memory.silence(),
    lasting: memory.store.lasting,
    since: timeOf(kept.since),
    putBack: (kept.putBack?.[terms?.hub ?? ""] ?? []).map(([when]) => when),
    discarded: { interactions: kept.lostInteractions, messages: kept.lostMessages },
  };
}

/** Terms that a hub offers in place of those agreed to: what changed, by name, and what they promise. */
export interface Offered {
  readonly changed: Record<string, [unknown, unknown]>;
  readonly promise: Promised;
}

/** What is offered; null: there is nothing to agree to. The functions are those of the terms. */
export function offered(
  { agreed, offered: terms }: Kept,
  changed: typeof changes,
  of: typeof epsilons,
  relayed: boolean,
): Offered | null {
  if (!agreed || !terms) return null;
  return { changed: changed(agreed, terms), promise: promise(terms, of(terms), relayed) };
}

/**
 * What a device keeps, and the steps that change it.
 *
 * It is the hub's token, terms and model; the sums of the round's trial; and each message that was made, which is outbox
 * and ledger at once: a message is in the ledger from before the first attempt to send it, because from then on it may
 * have left. No click, query, feature or time of an interaction is kept. Sums are of privatised values with randomised
 * response, else of true ones, in clear, since a page may live for one search only; what takes their place is their
 * message. They are discarded after 30 days, too. What an interaction adds is kept beside the sums until it is added, so
 * that a page that is left in the meantime loses nothing.
 *
 * Each function here is one step of a transaction of a store: it changes what it is given, and waits for nothing.
 */

import { decodeModel, noiseOf, reportOf } from "./messages.js";
import type { Bytes } from "./oblivious/bytes.js";
import type { Asked } from "./oblivious/tokens.js";
import { epsilonMessage, perHalf, rewardFor, type Terms, termsOf } from "./terms.js";
import { after, complete, type Step, type Trial } from "./trial.js";
import type { Words } from "./words.js";

/** Outcomes of a message that was sent. */
export const COUNTED = "counted";
export const TOO_LATE = "too late, not counted";
export const NOT_DUE = "was not due, not counted";
export const OVER = "training was over, not counted";
export const REFUSED = "refused, not counted";
export const UNKNOWN = "no answer came; it may have been counted";

/** A message that was made. */
export interface Message {
  readonly number: number;
  readonly hub: string;
  readonly round: number;
  readonly body: Uint8Array;
  /** ε of the message, in nats. */
  readonly epsilon: number;
  /** What its numbers count in: a part of the reward, or one of so many private numbers. */
  readonly unit: number;
  /** Milliseconds since 1970 at the first attempt to send it; null: it never left. */
  sent: number | null;
  /** Attempts after which nobody knows whether it was counted. */
  unanswered: number;
  /** Null: none yet. */
  outcome: string | null;
}

/** A head of a log that was checked. */
export interface Head {
  readonly size: number;
  /** Hash of its tree, hexadecimal. */
  readonly root: string;
  /** The checkpoint with its signatures. */
  readonly note: string;
  /** Data of the newest entry about a model, hexadecimal; none where an earlier version kept the head. */
  readonly model?: string;
  /** When the log was last put back from a backup, in seconds since 1970; 0 or none: never. */
  readonly recovered?: number;
  /** The newest change of each key, by what it is: the log's entry, hexadecimal. */
  readonly keys?: Record<string, string>;
}

/** A token of an epoch; what was asked for is gone when it was bought, and when it cannot be. */
interface Token {
  /** What the hub published of its epoch. */
  readonly offer: Bytes;
  asked: Asked | null;
  /** Null: not bought yet or, without what was asked for, never. */
  token: Bytes | null;
  /** What it draws by, and the round with whose message it is shown; null: not known yet. */
  beacon: Bytes | null;
  round: number | null;
}

/** Tokens by the name of the hub and the epoch. */
export interface KeptPurse {
  readonly tokens: Record<string, Token>;
}

/** An interaction that is over and that the record's trial does not count yet. */
export interface Ended {
  /** Its trial, with the time of the trial's first interaction; what was done before it is in the record. */
  readonly held: Trial;
  readonly step: Step;
}

/** All that is kept. */
export interface Kept {
  /** URL of the hub that everything here is about. */
  url: string | null;
  /** Token of the device; null: it has to enrol. */
  token: string | null;
  /** A token that the hub is still to forget. */
  leaving: string | null;
  /** The terms that it is of; none where an earlier version left. */
  leavingTerms?: Terms | null;
  /** Terms of the token; those that the app agreed to; those that it has not agreed to. */
  terms: Terms | null;
  agreed: Terms | null;
  offered: Terms | null;
  /** The model message as it came, its entity tag, and the token with which it was fetched. */
  model: Uint8Array | null;
  tag: string | null;
  modelOf: string | null;
  /** In the model's round: -1, the device is not due; the seed to try; or null, it draws one. */
  part: number | null;
  /** The message of the best model so far, where the device compares; null: it learns. */
  best: Uint8Array | null;
  /** Training is over. */
  over: boolean;
  /** The user has opted out. */
  out: boolean;
  backoff: readonly number[] | null;
  /** Sum of the ε of messages that were erased, or that were sent before the record was deleted. */
  erased: number;
  lostInteractions: number;
  lostMessages: number;
  trial: Trial | null;
  /** Interactions of pages that went before they could add them. */
  ended?: Ended[] | undefined;
  messages: Message[];
  /** By hub, the newest head of its log that was checked, and heads that cannot both be true. */
  heads?: Record<string, Head>;
  conflicts?: Record<string, readonly [string, string]>;
  /** By hub, when it was put back from a backup, in seconds since 1970, with the heads seen before and after. */
  putBack?: Record<string, (readonly [number, string, string])[]>;
  /** Tokens that are bought or spent. */
  purse?: KeptPurse;
  /** When this record was begun, in milliseconds since 1970; none where an earlier version began it. */
  since?: number;
}

/** What must outlive even the record. */
export type Life = Pick<Kept, "erased" | "out">;

/** What a new device keeps. */
export function nothing(): Kept {
  return {
    url: null,
    token: null,
    leaving: null,
    terms: null,
    agreed: null,
    offered: null,
    model: null,
    tag: null,
    modelOf: null,
    part: null,
    best: null,
    over: false,
    out: false,
    backoff: null,
    erased: 0,
    lostInteractions: 0,
    lostMessages: 0,
    trial: null,
    messages: [],
  };
}

/** Sum of the ε of all messages that left or may have left, of those that were erased too. */
export function spent(kept: Kept): number {
  return kept.messages.reduce((sum, { sent, epsilon }) => (sent === null ? sum : sum + epsilon), kept.erased);
}

/** Whether one more message would exceed what a lifetime allows; sums that differ by rounding alone are equal. */
export function exceeds(spent: number, epsilon: number, lifetime: number): boolean {
  return spent + epsilon > lifetime * (1 + 1e-9);
}

/** Milliseconds for which the sums of a trial are kept at most. */
export const TRIAL_LIFE = 30 * 86_400_000;

/** False of a trial that was begun too long ago, or of which nobody knows when. */
const isRecent = (trial: Trial | null) => Math.abs(Date.now() - trial?.since!) < TRIAL_LIFE;

/** Discard the trial. */
export function dropTrial(kept: Kept): void {
  const [plus, minus] = kept.trial?.done ?? [0, 0];
  kept.lostInteractions += kept.terms?.interleaved ? plus : plus + minus;
  kept.trial = null;
}

/** Discard trials, and messages that never left. */
function discard(kept: Kept): void {
  dropTrial(kept);
  const left = kept.messages.filter(({ sent }) => sent !== null);
  kept.lostMessages += kept.messages.length - left.length;
  kept.messages = left;
}

/** Set the outcome of messages that left and are not sent again to UNKNOWN. */
function giveUp(kept: Kept, which: (message: Message) => boolean = () => true): void {
  for (const message of kept.messages) {
    if (message.sent !== null && message.outcome === null && which(message)) message.outcome = UNKNOWN;
  }
}

const sameTerms = (a: Terms | null, b: Terms) => JSON.stringify(a) === JSON.stringify(b);

/** Keep the token and terms of an enrolment; if another page enrolled first, its token stays. */
export function adopt(kept: Kept, url: string, token: string, terms: Terms): void {
  if (kept.token !== null) {
    if (kept.token !== token) Object.assign(kept, { leaving: token, leavingTerms: terms }); // nothing would remain of it here: the hub is to forget it
    return;
  }
  if (!sameTerms(kept.terms, terms)) {
    discard(kept);
    giveUp(kept);
    Object.assign(kept, { model: null, tag: null, modelOf: null, over: false });
  }
  Object.assign(kept, { url, token, terms, agreed: terms, offered: null });
}

/**
 * Forget a token that the hub does not know any more; the device then enrols as a new one. A message that may have been
 * counted for the old device must not count for the new one.
 */
export function forgetToken(kept: Kept, token: string): void {
  if (kept.token === token) kept.token = null;
  giveUp(kept, ({ unanswered }) => unanswered > 0);
}

/** Forget everything about the hub except the ledger and the terms agreed to. */
export function forgetHub(kept: Kept): void {
  discard(kept);
  giveUp(kept);
  const { erased, agreed, offered, out, lostInteractions, lostMessages, messages } = kept;
  Object.assign(kept, nothing(), { erased, agreed, offered, out, lostInteractions, lostMessages, messages });
}

/** Forget everything except the sum of the ε that was spent. */
export function erase(kept: Kept): void {
  const [erased, { since }] = [spent(kept), kept];
  for (const name in kept) delete kept[name as keyof Kept];
  Object.assign(kept, nothing(), { erased, since });
}

/** Keep that the user opted out, and discard messages that have not left. */
export function optOut(kept: Kept): void {
  discard(kept);
  giveUp(kept);
  kept.out = true;
}

/** Keep a new model, and discard the trial of the model before it. */
export function moveOn(
  kept: Kept,
  model: Uint8Array,
  tag: string | null,
  token: string,
  part: number | null,
  best: Uint8Array | null,
): void {
  // Else another page was here already, and is trying this model.
  if (`${kept.model},${kept.part}` !== `${model},${part}`) discard(kept);
  Object.assign(kept, { model, tag, modelOf: token, part, best });
}

/** Whether a message of that round exists, sent or not; there is at most one. */
export function reported(kept: Kept, hub: string, round: number): boolean {
  return kept.messages.some((message) => message.hub === hub && message.round === round);
}

/** The unfinished trial of a round; null if there is none. */
export function trialOf(kept: Kept, hub: string, round: number): Trial | null {
  return kept.trial?.hub === hub && kept.trial.round === round ? kept.trial : null;
}

/**
 * Add a step to its trial, and make the message if it was the last of the round.
 *
 * @param held The trial before the step, as it is in memory.
 * @param words Asked for what hides the message.
 * @returns The trial as it is now, null if the round has its message. A step does not count if another page has
 *   completed the round, has a newer model, tries another seed, or has made this half's interactions.
 */
export function add(kept: Kept, terms: Terms, held: Trial, step: Step, words: Words): Trial | null {
  const { hub, round, seed } = held;
  if (kept.out || kept.offered || !kept.model || reported(kept, hub, round)) return null;
  if (kept.terms?.hub !== hub || decodeModel(terms, kept.model).round !== round) return null;
  const before = trialOf(kept, hub, round) ?? { ...held, sums: [0, 0], done: [0, 0] };
  const most = perHalf(terms);
  if (before.seed !== seed || step.counts.some((count, half) => before.done[half] + count > most)) return before;
  const trial = after(before, step);
  if (!complete(terms, trial)) {
    return (kept.trial = trial);
  }
  kept.messages.push({
    number: Math.max(0, ...kept.messages.map((message) => message.number)) + 1,
    hub,
    round,
    body: reportOf(terms, seed, trial.sums, noiseOf(terms, words), trial.check),
    unit: terms.inside + terms.outside || rewardFor(terms).scale,
    epsilon: epsilonMessage(terms),
    sent: null,
    unanswered: 0,
    outcome: null,
  });
  kept.trial = null;
  return null;
}

/** Add the interactions that ended since the record was written; those of a record that cannot be read are lost. */
export function addEnded(kept: Kept, words: Words): void {
  if (!isRecent(kept.trial)) dropTrial(kept);
  const { ended = [] } = kept;
  delete kept.ended;
  for (const one of ended) {
    try {
      if (isRecent(one.held)) add(kept, termsOf(kept.terms), one.held, one.step, words);
    } catch {
      // The record is damaged, which whoever reads it next says.
    }
  }
}

const find = (kept: Kept, number: number) =>
  kept.messages.find((message) => message.number === number && message.outcome === null);

/**
 * Put into the ledger that a message is being sent.
 *
 * @param lifetime Largest sum of the ε of all messages that ever left, this one included.
 * @returns False: that sum would be exceeded, the user has opted out, or another page had the message's answer; it must
 *   not be sent.
 */
export function sending(kept: Kept, number: number, lifetime: number, now: number): boolean {
  const message = find(kept, number);
  if (kept.out || !message) return false;
  if (message.sent === null && exceeds(spent(kept), message.epsilon, lifetime)) return false;
  message.sent ??= now;
  message.unanswered++;
  return true;
}

/**
 * Keep the result of an attempt to send.
 *
 * @param outcome Null: it was not counted now, and may be later. Where an earlier attempt had no answer, a message that
 *   is not counted may have been counted then: UNKNOWN.
 */
export function answered(kept: Kept, number: number, outcome: string | null): void {
  const message = find(kept, number);
  if (!message) return;
  message.unanswered--;
  if (outcome) message.outcome = message.unanswered > 0 && outcome !== COUNTED ? UNKNOWN : outcome;
}

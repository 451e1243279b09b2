/**
 * The terms of a hub, which a device agrees to before it sends anything (section 1 of the wire format).
 *
 * A device computes by itself what they promise its user, and does not rely on an ε that somebody else computed.
 */

import { WireError } from "./errors.js";
import { epsilonOf } from "./randomised_response.js";
import { REWARDS, type Reward, rewardOf, roundEven } from "./reward.js";

/** Terms as a hub hands them out; the names are those of the wire format. */
export interface Terms {
  readonly protocol: string;
  readonly wire: number;
  readonly hub: string;
  readonly n_features: number;
  readonly ranker: string;
  readonly hidden: number;
  readonly reward: string;
  readonly reward_values: number | null;
  readonly depth: number;
  readonly interactions: number;
  readonly sigma: number;
  readonly mechanism: string;
  readonly p: number;
  readonly epsilon: number | null;
  readonly inside: number;
  readonly outside: number;
  readonly clip: number;
  readonly interleaved: boolean;
  readonly participations: number | null;
  /** Part of the devices that are due in a round. */
  readonly due: number;
  /** The seed of a perturbation is a draw. */
  readonly drawn_seeds: boolean;
  /** Part of the devices that compare the newest model with the best one. */
  readonly checks: number;
  /** Rounds for which a device has a blind token; 0: it reports with its own. */
  readonly tokens: number;
  /** Fewest tokens that an epoch sells; with fewer nobody reports in it. */
  readonly least_sales: number;
  /** Fewest reports that a relay passes on together, and the key that requests through it are encrypted to. */
  readonly batch: number;
  readonly gateway: string;
  /** Public key of the hub's log, hexadecimal; empty: it has none. */
  readonly log: string;
  /** Public key of whom the hub belongs to: without it the log is not put back and its key not changed; or empty. */
  readonly operator: string;
}

/** Names of terms by their type. */
const TYPES: Record<string, string> = {
  string: "protocol hub ranker reward mechanism gateway log operator",
  integer: "wire n_features hidden reward_values depth interactions inside outside participations tokens least_sales batch",
  number: "sigma p epsilon clip due checks",
  boolean: "interleaved drawn_seeds",
};
/** Terms that may be null. */
const NULLABLE = ["reward_values", "epsilon", "participations"];
/** What terms mean that are not there; the others have to be. */
const ABSENT = {
  ...{ inside: 0, outside: 0, clip: 1, interleaved: false, participations: null, due: 1, drawn_seeds: false },
  ...{ checks: 0, tokens: 0, least_sales: 1, batch: 0, gateway: "", log: "", operator: "" },
};
/** Largest model that is taken, in weights: 4 MB. */
const LARGEST_MODEL = 1_000_000;

const powerOfTwo = (n: number) => n >= 1 && Number.isInteger(Math.log2(n));
const between = (x: number | null, low: number, high: number) => x !== null && x >= low && x <= high;

/**
 * The terms in an object that was read from JSON; other keys are ignored, as later versions may add some.
 *
 * @throws WireError A term is missing, has another type, is out of range or contradicts another.
 */
export function termsOf(given: unknown): Terms {
  const all: Record<string, unknown> = { ...ABSENT, ...(given as object) };
  const values: Record<string, unknown> = {};
  for (const type in TYPES) {
    for (const name of TYPES[type].split(" ")) {
      const value = (values[name] = all[name]);
      const right =
        value === null
          ? NULLABLE.includes(name)
          : type === "integer"
            ? Number.isSafeInteger(value)
            : typeof value === type && value === value;
      if (!right) throw new WireError(`term ${name} is missing or of another type`);
    }
  }
  const terms = values as unknown as Terms;
  if (!inRange(terms)) throw new WireError("terms out of range");
  return terms;
}

/** Whether terms of the right types are those of a hub; what comes later in a line may rely on what comes before. */
function inRange(t: Terms): boolean {
  const { mechanism, epsilon, hidden, inside, outside, tokens, batch, gateway, checks } = t;
  const response = mechanism === "randomised-response";
  const laplace = mechanism === "laplace";
  const piecewise = mechanism === "piecewise";
  return (
    t.protocol === "foltr-es" &&
    t.wire === (tokens ? 3 : draws(t) ? 2 : 1) &&
    between(t.due, 2 ** -32, 1) &&
    between(checks, 0, 1) &&
    between(tokens, 0, 1e6) &&
    between(batch, 0, tokens && 1e5) &&
    between(t.least_sales, 1, tokens ? 1e8 : 1) &&
    !batch === !gateway &&
    /^[0-9a-f]{32}$/.test(t.hub) &&
    KEY.test(gateway) &&
    KEY.test(t.log) &&
    KEY.test(t.operator) &&
    t.n_features >= 1 &&
    (t.ranker === "linear" ? hidden === 0 : t.ranker === "mlp" && hidden >= 1) &&
    sizeOf(t) <= LARGEST_MODEL &&
    REWARDS.includes(t.reward) &&
    between(t.reward_values ?? 2, 2, 65_537) &&
    between(t.depth, 1, 10) &&
    between(t.interactions, 1, 10_000) &&
    (t.interleaved ? piecewise : t.interactions % 2 === 0) &&
    between(t.sigma, 1e-30, 1e30) &&
    (response || laplace || piecewise) &&
    between(t.p, response ? 1 / rewardFor(t).numerators.length : 1, 1) &&
    response === (epsilon === null) &&
    (!laplace || (epsilon! > 0 && epsilon! <= 1000 && noiseFits(t))) &&
    (!piecewise || between(epsilon, 0.001, 16)) &&
    (piecewise ? powerOfTwo(inside) && powerOfTwo(outside) : !inside && !outside) &&
    inside + outside <= 256 &&
    between(t.clip, piecewise ? 1e-6 : 1, 1) &&
    (t.participations ?? 1) >= 1 &&
    !(checks && (laplace || !epsilonInteraction(t))) &&
    perHalf(t) * largest(t) < 2 ** 24
  );
}

/** A public key of 32 bytes, or none. */
const KEY = /^([0-9a-f]{64})?$/;

/** Whether draws decide what a device reports. */
const draws = (t: Terms) => t.drawn_seeds || t.due < 1;

/** Epoch of a round, with tokens: round 0 is epoch 0, which has none; each later epoch is as many rounds as the terms say. */
export const epochOf = (t: Terms, round: number): number => Math.ceil(round / t.tokens);

const noiseFits = (terms: Terms) => (40 * largest(terms)) / terms.epsilon! < 2 ** 30;

/** Number of weights of the model. */
export function sizeOf(terms: Terms): number {
  return terms.hidden ? terms.hidden * (terms.n_features + 2) : terms.n_features;
}

/** Interactions that judge θ + σv, and as many that judge θ − σv; all of them if interleaved. */
export function perHalf(terms: Terms): number {
  return terms.interleaved ? terms.interactions : terms.interactions / 2;
}

const tables = new Map<string, Reward>();

/** The table of the terms' reward; made once. */
export function rewardFor(terms: Terms): Reward {
  const key = `${terms.reward} ${terms.depth} ${terms.reward_values}`;
  let table = tables.get(key);
  if (!table) tables.set(key, (table = rewardOf(terms.reward, terms.depth, terms.reward_values)));
  return table;
}

/** The numerator of the largest reward. */
export function largest(terms: Terms): number {
  const { numerators } = rewardFor(terms);
  return numerators[numerators.length - 1];
}

/** L of rule 5.10: the largest difference that a piecewise message tells. */
export function largestDifference(terms: Terms): number {
  return Math.max(1, roundEven(terms.clip * (perHalf(terms) * largest(terms))));
}

/** Whether an interaction is privatised when it is over; else when the message is made. */
export function atOnce(terms: Terms): boolean {
  return terms.mechanism === "randomised-response";
}

/** ε of one interaction, in nats; infinite without protection (rule 3.1). */
export function epsilonInteraction(terms: Terms): number {
  return terms.epsilon ?? epsilonOf(terms.p, rewardFor(terms).numerators.length);
}

/** ε of one message, all of whose interactions may change, in nats. */
export function epsilonMessage(terms: Terms): number {
  const one = epsilonInteraction(terms);
  return terms.mechanism === "piecewise" ? one : one * terms.interactions;
}

/** ε of all messages that a device ever sends under these terms, in nats; infinite where nothing limits them. */
export function epsilonLife(terms: Terms): number {
  return terms.participations === null ? Infinity : terms.participations * epsilonMessage(terms);
}

/** ε of one interaction, one message, and all messages that the terms allow. */
export function epsilons(terms: Terms): number[] {
  return [epsilonInteraction, epsilonMessage, epsilonLife].map((epsilon) => epsilon(terms));
}

/** The terms that differ, without the hub's name: by name, the agreed value and the offered one. */
export function changes(agreed: Terms, offered: Terms): Record<string, [unknown, unknown]> {
  const out: Record<string, [unknown, unknown]> = {};
  for (const [name, old] of Object.entries(agreed)) {
    const now = offered[name as keyof Terms];
    if (name !== "hub" && old !== now) out[name] = [old, now];
  }
  return out;
}

/** Limits that the app sets, in nats. */
export interface Limits {
  /** Largest ε of one message. */
  readonly mostEpsilon: number;
  /** Largest ε of one search. */
  readonly mostSearchEpsilon: number;
  /** Largest sum of the ε of all messages. */
  readonly lifetimeEpsilon: number;
}

/** Why a device sends nothing under these terms, whatever it has spent; empty if it does. */
export function objection(terms: Terms, { mostEpsilon, mostSearchEpsilon }: Limits): string {
  for (const [what, given, most, name] of [
    ["message", epsilonMessage(terms), mostEpsilon, "mostEpsilon"],
    ["search", epsilonInteraction(terms), mostSearchEpsilon, "mostSearchEpsilon"],
  ] as const) {
    if (given > most) return `the terms give a ${what} ε = ${given.toPrecision(4)}; this app allows ${most} (${name})`;
  }
  return "";
}

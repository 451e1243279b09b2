/**
 * One round at a device: a perturbation is tried, and what came of it becomes one message. No storage, no network.
 *
 * A trial goes through B interactions. They take turns, θ + σv first, θ − σv next; or each list is made of both
 * rankers'. When an interaction is over, its clicks become values of the reward, and from then on only these exist.
 * With randomised response they are privatised at once; with the other mechanisms the sums are true ones, which end in
 * the step that makes the message.
 */

import { credited, draft, type Team } from "./interleave.js";
import type { Model } from "./messages.js";
import { perturbation } from "./perturbation.js";
import { privatise } from "./randomised_response.js";
import { perturbed, ranked } from "./scores.js";
import { atOnce, perHalf, rewardFor, type Terms } from "./terms.js";
import type { Words } from "./words.js";

/** A list for the user. */
export interface Ranking {
  /** Which document to show at each position, best first. */
  readonly order: readonly number[];
  /** Its clicks count. */
  readonly learning: boolean;
}

/** A list that the user is looking at: the only place where clicks are, and it is memory. */
export interface Interaction {
  readonly ranking: Ranking;
  readonly trial: Trial;
  /** When it was shown or clicked last, in seconds by a clock that does not jump. */
  since: number;
  /** The clicks, bit i for rank i + 1. */
  pattern: number;
  /** Whose each document is; null: the list is one ranker's. */
  readonly team: readonly Team[] | null;
}

/** A perturbation that is being tried. */
export interface Trial {
  readonly hub: string;
  readonly round: number;
  /** Makes the perturbation, nothing else; of a check, names the model that the newest is compared with. */
  readonly seed: number;
  /** The newest model and the best one are tried, in place of θ + σv and θ − σv. */
  readonly check?: boolean;
  /** Sums of values under θ + σv and under θ − σv: privatised ones with randomised response, else true ones. */
  readonly sums: readonly [number, number];
  /** Interactions behind each sum. */
  readonly done: readonly [number, number];
  /** Milliseconds since 1970 when its first interaction was kept; none in memory, or where an earlier version began it. */
  readonly since?: number;
}

/** What is due: 0 for θ + σv, 1 for θ − σv; 0 where both make a list. */
export function halfOf(trial: Trial): 0 | 1 {
  return trial.done[0] > trial.done[1] ? 1 : 0;
}

/** Whether all B interactions took place. */
export function complete(terms: Terms, trial: Trial): boolean {
  return Math.min(...trial.done) >= perHalf(terms);
}

/** What an interaction adds to a trial: values for θ + σv and θ − σv, and how many interactions of each. */
export interface Step {
  readonly adds: readonly [number, number];
  readonly counts: readonly [number, number];
}

/** The step of an interaction that is over; with randomised response two words are drawn, and it tells them alone. */
export function stepOf(terms: Terms, over: Interaction, words: Words): Step {
  const { numerators, index } = rewardFor(terms);
  const half = halfOf(over.trial);
  if (over.team) {
    const [plus, minus] = credited(over.pattern, over.team);
    return { adds: [numerators[index[plus]], numerators[index[minus]]], counts: [1, 1] };
  }
  let number = index[over.pattern];
  if (atOnce(terms)) number = privatise(number, words(2), terms.p, numerators.length);
  const value = numerators[number];
  return half ? { adds: [0, value], counts: [0, 1] } : { adds: [value, 0], counts: [1, 0] };
}

/** A trial with one more step. */
export function after(trial: Trial, { adds, counts }: Step): Trial {
  const both = (a: readonly [number, number], b: readonly [number, number]) => [a[0] + b[0], a[1] + b[1]] as const;
  return { ...trial, sums: both(trial.sums, adds), done: both(trial.done, counts) };
}

/** A model and what is tried with it, in memory. */
export class Round {
  /** The interaction that goes on. */
  open: Interaction | null = null;
  #v: [seed: number, v: Float32Array] | null = null;

  constructor(
    readonly terms: Terms,
    readonly model: Model,
    /** What was tried so far; null: nothing. */
    public trial: Trial | null,
    /** The round has its message. */
    public reported: boolean,
    /** -1: the device is not due; the seed to try; or null: it draws one. */
    readonly part: number | null = null,
    /** The best model so far, which the newest is compared with; null: the device learns. */
    readonly best: Float32Array | null = null,
  ) {}

  /** Whether it is this model of these terms. */
  isAbout(terms: Terms, { round, weights }: Model): boolean {
    const mine = this.model.weights;
    const same = this.terms.hub === terms.hub && this.model.round === round && mine.length === weights.length;
    return same && mine.every((weight, i) => Object.is(weight, weights[i]));
  }

  /** Drop the list that is shown and the trial under way; no message is made of them. */
  drop(): void {
    this.open = this.trial = this.#v = null;
  }

  /**
   * A list for the user.
   *
   * @param features A vector a document.
   * @param learn Try the perturbation; else rank by the model itself.
   * @param words Asked for the seed of a new trial, and for who goes first in the pairs of a list of both rankers.
   * @param now Time in seconds, by a clock that does not jump.
   */
  show(features: readonly Float32Array[], learn: boolean, words: Words, now: number): Ranking {
    const { terms, model, best } = this;
    if (!learn || !features.length) {
      return { order: Object.freeze(ranked(terms, model.weights, features)), learning: false };
    }
    const nothing = [0, 0] as const;
    const seed = this.trial?.seed ?? this.part ?? words(1)[0];
    const trial = (this.trial ??= { hub: terms.hub, round: model.round, seed, check: !!best, sums: nothing, done: nothing });
    if (this.#v?.[0] !== seed) this.#v = [seed, perturbation(seed, model.weights.length)];
    const v = this.#v[1];
    const ranker = (half: number) =>
      best ? (half ? best : model.weights) : perturbed(terms, model.weights, v, half);
    const list = (half: number) => ranked(terms, ranker(half), features);
    let order: number[];
    let team: readonly Team[] | null = null;
    if (terms.interleaved) ({ order, team } = draft(list(0), list(1), terms.depth, words(1)[0]));
    else order = list(halfOf(trial));
    const ranking = Object.freeze({ order: Object.freeze(order), learning: true });
    this.open = { ranking, trial, since: now, pattern: 0, team };
    return ranking;
  }

  /** The user clicked at a position, from 0. Whether it counts: in the list that is open, down to `depth`. */
  click(ranking: Ranking, position: number, now: number): boolean {
    if (this.open?.ranking !== ranking) return false;
    this.open.since = now;
    if (position < this.terms.depth) this.open.pattern |= 1 << position;
    return position < this.terms.depth;
  }
}

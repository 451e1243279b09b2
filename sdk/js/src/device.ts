/**
 * A device of a hub, for the page that it runs in.
 *
 * What a user does stays in memory until the interaction is over; then it becomes values of a reward. With randomised
 * response these become private at once; else their sums are kept as they are, unprotected, until B interactions make
 * the message, and become private in it. No sum that is not private is sent. B interactions make a message of a few bytes; it waits in the store for
 * `sync`, which alone, with `leave`, uses the network.
 *
 * No method throws, and no promise is rejected. What goes wrong is logged, and never what a user did.
 */

import { Backoff, LONGEST_WAIT, monotonic } from "./backoff.js";
import { type Attest, HubClient, usableToken } from "./connection.js";
import { Conversation, POLL, type Synced } from "./conversation.js";
import { ConfigError } from "./errors.js";
import { IndexedDbStore } from "./indexed_db.js";
import * as k from "./kept.js";
import { Memory } from "./memory.js";
import { matrixOf } from "./scores.js";
import * as shown from "./shown.js";
import type { LedgerRow, Offered, Privacy } from "./shown.js";
import { MemoryStore, type Store } from "./store.js";
import { changes, epsilons } from "./terms.js";
import type { Ranking } from "./trial.js";
import { trustOf } from "./trust.js";
import { osWords, type Words } from "./words.js";

/** Settings of a device that have a default. */
export interface Options {
  /** Largest ε of one message that this app allows; the device is silent where the terms give more. Default 1. */
  mostEpsilon?: number;
  /** The same of one search. Default 1. */
  mostSearchEpsilon?: number;
  /** Largest sum of the ε of all messages that ever leave; `Infinity`: no limit. Default 1. */
  lifetimeEpsilon?: number;
  /** Longest time of a request, in seconds. Default 10. */
  timeout?: number;
  /** Seconds without a click after which an interaction is over at the next `sync`. Default 60. */
  patience?: number;
  /** Plain http to another machine, where the network itself is protected. Default false. */
  allowHttp?: boolean;
  /** Public keys of witnesses of the hub's log; a model is used only if `quorum` of them cosigned the log that has it. */
  witnesses?: readonly string[];
  /** Default: more than half of the witnesses. */
  quorum?: number;
  /** URL of an oblivious relay that everything goes through: the hub then sees no address. */
  relay?: string;
  /**
   * Called where the hub wants a statement of the device's platform to enrol, with the hub's challenge and the kinds
   * that it accepts; the kind and the statement, which JSON can write. `attest.js` has one for WebAuthn.
   */
  attest?: Attest;
  /** Where to keep what must last. Default: an IndexedDB database; where there is no IndexedDB, memory. */
  store?: Store;
  /** Ask the browser to keep the store when space is short; some ask their user. Default true. */
  persist?: boolean;
  /** Gets a line about what goes wrong. Default: a warning on the console. */
  log?: (message: string) => void;
  /** Source of random words, for tests only; by default the browser's cryptographic generator. */
  _words?: Words;
}

/** A store that lasts; where a page may not touch its database, one that fails: there may be something in it. */
function defaultStore(): Store {
  try {
    if (!globalThis.indexedDB) return new MemoryStore();
  } catch {
    // the store says so, each time that it is used
  }
  return new IndexedDbStore();
}

/** Documents in the order in which the app gave them. */
function dataOrder(features: unknown): Ranking {
  const length = Array.isArray(features) ? features.length : 0;
  return Object.freeze({ order: Object.freeze(Array.from({ length }, (_, i) => i)), learning: false });
}

/** One device. Several pages of one origin may share its store. */
export class Device {
  /** Fulfilled when what was kept has been read; until then rankings stay in the order of the data. */
  readonly ready: Promise<void>;
  #memory: Memory;
  #conversation: Conversation;
  #busy = false;

  /**
   * @param hub URL of the hub, `https://…`, or a path of the page's own origin. One store belongs to one hub at a time.
   * @param enrolment The hub's enrolment token.
   * @throws ConfigError A setting that can never work. Nothing else is thrown, here or later.
   */
  constructor(hub: string, enrolment: string, options: Options = {}) {
    const { mostEpsilon = 1, mostSearchEpsilon = 1, lifetimeEpsilon = 1, timeout = 10, patience = 60 } = options;
    const limits = { mostEpsilon, mostSearchEpsilon, lifetimeEpsilon };
    for (const [name, number] of Object.entries({ ...limits, timeout, patience })) {
      if (typeof number !== "number" || !(number >= 0)) {
        throw new ConfigError(`${name} must be a number of at least 0.`);
      }
    }
    if (!usableToken(enrolment)) {
      throw new ConfigError("enrolment must be the hub's enrolment token.");
    }
    const client = new HubClient(hub, options.allowHttp ?? false, timeout, options.relay, options.attest);
    const log = options.log ?? ((message: string) => console.warn(`fedrank: ${message}`));
    const store = options.store ?? defaultStore();
    this.#memory = new Memory(store, client.url, limits, !!client.relay, options._words ?? osWords, log);
    this.#conversation = new Conversation(this.#memory, client, enrolment, patience, trustOf(options.witnesses, options.quorum));
    this.ready = this.#safelyLater("open", undefined, async () => {
      await this.#memory.open();
      if (options.persist !== false && !this.#memory.out) this.#memory.store.persist?.();
      this.#conversation.backoff = new Backoff(await this.#memory.change((kept) => kept.backoff));
    });
  }

  // ------------------------------------------------------------------------------------------------ for every search

  /**
   * Rank documents; ends the interaction before.
   *
   * @param features Of each document `n_features` finite numbers. If they cannot be used, this is logged and the
   *   documents stay in the order of the data, as they do before there is a model.
   */
  rank(features: readonly ArrayLike<number>[]): Ranking {
    return this.#safely("rank", dataOrder(features), () => {
      const memory = this.#memory;
      memory.end();
      const x = matrixOf(features, memory.terms && memory.terms.n_features);
      if (typeof x === "string") {
        memory.complain(`rank: ${x}`);
        return dataOrder(features);
      }
      if (!memory.round || memory.closed) return dataOrder(features);
      return memory.round.show(x, memory.learns(), memory.words, monotonic());
    });
  }

  /**
   * Report a click.
   *
   * @param ranking The newest result of `rank`; clicks on earlier ones are ignored.
   * @param position Rank of the clicked document, from 0.
   * @returns Whether the click counts; it does not below the ranks of the hub's metric, or while nothing is learnt.
   */
  logClick(ranking: Ranking, position: number): boolean {
    return this.#safely("logClick", false, () => {
      if (!Number.isInteger(position) || position < 0 || position >= ranking.order.length) {
        this.#memory.complain("logClick: position must be one of what was shown, from 0");
        return false;
      }
      return this.#memory.round?.click(ranking, position, monotonic()) ?? false;
    });
  }

  /** End the interaction, with or without a click, as the next `rank` does. Returns whether it counts. */
  finish(ranking: Ranking): boolean {
    return this.#safely("finish", false, () => this.#memory.round?.open?.ranking === ranking && this.#memory.end());
  }

  /** Whether the clicks of the next ranking will count: not after B interactions of a round, nor while silent. */
  get wantsClicks(): boolean {
    return this.#safely("wantsClicks", false, () => this.#memory.learns());
  }

  // ---------------------------------------------------------------------------------------------------- now and then

  /**
   * Synchronise with the hub: enrol, fetch the model, send messages. Call it again after `nextIn` seconds. Earlier
   * calls are harmless; after a failure they do nothing until the pause is over.
   */
  async sync(): Promise<Synced> {
    const told = (nextIn: number, why: string): Synced => {
      return { state: "RETRY", sent: 0, nextIn, why, lasting: this.#memory.store.lasting };
    };
    await this.ready;
    if (this.#memory.closed) return told(LONGEST_WAIT, "the device is closed");
    if (this.#busy) return told(1, "another call is at it");
    this.#busy = true;
    try {
      const failed = told(POLL, "something failed; see the log");
      return await this.#safelyLater("sync", failed, () => this.#conversation.sync());
    } finally {
      this.#busy = false;
    }
  }

  /**
   * Stop sending: messages that have not left are discarded. Ranking continues with the newest model.
   *
   * @returns Whether this was written and outlives the page.
   */
  optOut(): Promise<boolean> {
    this.#memory.out = this.#memory.unsaved = true; // at once, whatever is still being written
    this.#memory.round?.drop();
    return this.#safelyLater("optOut", false, async () => {
      await this.ready;
      await this.#memory.load(k.optOut);
      this.#memory.round?.drop();
      this.#memory.unsaved = false;
      return this.#memory.store.lasting;
    });
  }

  /** Take part again. Returns whether this was written and outlives the page. */
  optIn(): Promise<boolean> {
    return this.#safelyLater("optIn", false, async () => {
      await this.ready;
      await this.#memory.put({ out: false });
      this.#memory.unsaved = false;
      await this.#memory.load();
      return this.#memory.store.lasting;
    });
  }

  /**
   * Opt out, have the hub forget this device's token, and forget the hub.
   *
   * @param erase Delete the ledger too, except for the sum of the ε that the limits are about.
   * @returns Whether the hub has forgotten the token; if not, each `sync` tries again.
   */
  leave(erase = true): Promise<boolean> {
    this.#memory.out = this.#memory.unsaved = true;
    this.#memory.round?.drop();
    return this.#safelyLater("leave", false, async () => {
      await this.ready;
      await this.#memory.load((kept) => {
        const leaving = kept.token ?? kept.leaving;
        const leavingTerms = kept.terms ?? kept.leavingTerms;
        (erase ? k.erase : k.forgetHub)(kept);
        Object.assign(kept, { url: this.#memory.url, leaving, leavingTerms, out: true, agreed: null, offered: null });
      });
      this.#memory.unsaved = false;
      await this.sync();
      return this.#memory.leaving === null;
    });
  }

  /**
   * Agree to the terms that the hub offers in place of those agreed to; see `offered`.
   *
   * A device agrees to the first terms of a hub by enrolling, if they are within `mostEpsilon`. Other terms stop it
   * (state TERMS_CHANGED): nothing is sent under them until this is called.
   *
   * @returns Whether there was something to agree to, and this outlives the page.
   */
  agree(): Promise<boolean> {
    return this.#safelyLater("agree", false, async () => {
      await this.ready;
      let done = false;
      await this.#memory.load((kept) => {
        if (!kept.offered) return;
        done = true;
        Object.assign(kept, { agreed: kept.offered, offered: null, backoff: null });
      });
      if (done) this.#conversation.backoff = new Backoff();
      return done && this.#memory.store.lasting;
    });
  }

  /** What the hub offers in place of the terms agreed to: what changed, by name; null: there is nothing to agree to. */
  offered(): Promise<Offered | null> {
    return this.#safelyLater("offered", null, async () => {
      await this.ready;
      const kept = await this.#memory.change((kept) => kept);
      return shown.offered(kept, changes, epsilons, this.#memory.relayed);
    });
  }

  // ---------------------------------------------------------------------------------------------------- for the user

  /** Every message that left the device or may have left, oldest first. */
  ledger(): Promise<LedgerRow[]> {
    return this.#safelyLater("ledger", [], async () => {
      await this.ready;
      return this.#memory.change(shown.ledger);
    });
  }

  /** The privacy guarantee, what it does not cover, and the ε spent so far; null: it cannot be read. */
  privacy(): Promise<Privacy | null> {
    return this.#safelyLater("privacy", null, async () => {
      await this.ready;
      const memory = this.#memory;
      const kept = await memory.change((kept) => kept);
      const persisted = (await memory.store.persisted?.().catch(() => false)) ?? false;
      return { ...shown.privacy(memory, kept, k.spent(kept), memory.terms && epsilons(memory.terms)), persisted };
    });
  }

  /** End the interaction and close the store. Later rankings stay in the order of the data. */
  close(): Promise<void> {
    return this.#safelyLater("close", undefined, async () => {
      await this.ready;
      if (this.#memory.closed) return;
      this.#memory.end();
      this.#memory.closed = true;
      await this.#memory.settled();
      this.#memory.store.close();
    });
  }

  /** The result of `act`, or `instead` where it fails; without the error's own words, which may quote the user. */
  #safely<T>(name: string, instead: T, act: () => T): T {
    try {
      return act();
    } catch (error) {
      return this.#failed(name, instead, error);
    }
  }

  async #safelyLater<T>(name: string, instead: T, act: () => Promise<T>): Promise<T> {
    try {
      return await act();
    } catch (error) {
      return this.#failed(name, instead, error);
    }
  }

  #failed<T>(name: string, instead: T, error: unknown): T {
    this.#memory.complain(`${name} failed: ${error instanceof Error ? error.name : "error"}`);
    return instead;
  }
}

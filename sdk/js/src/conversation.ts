/** Synchronisation of a device with its hub: enrol, fetch the model, send messages, leave. */

import { Backoff, LONGEST_WAIT, monotonic } from "./backoff.js";
import { type HubClient, NoAnswer, Refusal } from "./connection.js";
import * as k from "./kept.js";
import type { Memory } from "./memory.js";
import { decodeModel } from "./messages.js";
import { changes, objection, type Terms, termsOf } from "./terms.js";
import type { Trust } from "./trust.js";
import { pauseBelow } from "./words.js";

/** Mean time between two synchronisations while all is well, in seconds. */
export const POLL = 60;

/**
 * State of a device with respect to its hub.
 *
 * - `OK`: all is well.
 * - `RETRY`: the hub asks to come back later, or its answer cannot be read.
 * - `STALE`: a message came too late; a newer model is to be fetched.
 * - `DONE`: training is over; the model stays.
 * - `OFFLINE`: no answer.
 * - `TERMS_CHANGED`: nothing is sent; the hub's terms are not those that the app agreed to.
 * - `UNPROVEN`: the hub's newest model is not used: nothing proves that everybody gets the same.
 * - `SILENT`: nothing is sent; the user opted out, or another message would exceed the allowed ε.
 */
export type State = "OK" | "RETRY" | "STALE" | "DONE" | "OFFLINE" | "TERMS_CHANGED" | "UNPROVEN" | "SILENT";

/** Result of a synchronisation with the hub. */
export interface Synced {
  readonly state: State;
  /** Messages that the hub counted this time. */
  readonly sent: number;
  /** Seconds until the next synchronisation is useful. */
  readonly nextIn: number;
  /** The reason of a state other than OK. */
  readonly why: string;
  /** The device's data outlives the page. */
  readonly lasting: boolean;
}

/** A part of the SDK that is loaded when it is needed. */
const later = <T>(part: Promise<T>): Promise<T> =>
  part.catch(() => {
    throw new NoAnswer("a part of the SDK cannot be loaded");
  });

/** The requests of a synchronisation, one after the other. */
export class Conversation {
  backoff = new Backoff();
  #sent = 0;
  #last: [State, string] = ["RETRY", "waits"];

  /** @param patience Seconds without a click after which an interaction is over. */
  constructor(
    private readonly memory: Memory,
    private readonly hub: HubClient,
    private readonly enrolment: string,
    private readonly patience: number,
    private readonly trust: Trust,
  ) {}

  /** Enrol if needed, fetch the model, send the waiting messages; stops where it cannot continue. */
  async sync(): Promise<Synced> {
    const { memory } = this;
    this.#sent = 0;
    try {
      for (const step of [this.#lookAround, this.#takeLeave, this.#agree, this.#fetch, this.#report]) {
        const stop = await step.call(this);
        if (stop instanceof Refusal) return await this.#later("RETRY", stop.why, stop.retryAfter);
        if (stop) return stop;
      }
    } catch (error) {
      if (error instanceof NoAnswer) return await this.#later("OFFLINE", `no answer (${error.message})`);
      return await this.#later("RETRY", `what is kept cannot be written (${(error as Error).name})`);
    }
    if (this.backoff.failures) {
      this.backoff = new Backoff();
      await this.#keepBackoff(null);
    }
    const why = memory.silence();
    const state = why ? "SILENT" : memory.over ? "DONE" : "OK";
    return this.#told(state, state === "OK" ? POLL / 2 + pauseBelow(POLL) : LONGEST_WAIT, why);
  }

  #told(state: State, nextIn: number, why = ""): Synced {
    return { state, sent: this.#sent, nextIn, why, lasting: this.memory.store.lasting };
  }

  #silent(): Synced {
    return this.#told("SILENT", LONGEST_WAIT, this.memory.silence());
  }

  async #later(state: State, why: string, retryAfter: number | null = null): Promise<Synced> {
    const pause = this.backoff.later(retryAfter);
    this.#last = [state, why];
    await this.#keepBackoff(this.backoff.kept);
    return this.#told(state, pause, why);
  }

  async #keepBackoff(backoff: number[] | null): Promise<void> {
    await this.memory.put({ backoff }).catch(() => {});
  }

  async #lookAround(): Promise<Synced | null> {
    const { memory } = this;
    const open = memory.round?.open;
    if (open && monotonic() - open.since >= this.patience) memory.end();
    await memory.settled();
    // Another page may have enrolled, opted out or left.
    const [token, out] = await memory.change((kept) => [kept.token, kept.out] as const);
    if (token !== memory.token || (out || memory.unsaved) !== memory.out) await memory.load();
    if ((memory.out || memory.unreadable) && memory.leaving === null) return this.#silent();
    const left = this.backoff.left();
    return left ? this.#told(this.#last[0], left, this.#last[1]) : null;
  }

  async #takeLeave(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    if (memory.leaving === null) return null;
    const refusal = await this.hub.leave(memory.leaving);
    if (refusal) return refusal;
    memory.leaving = null;
    await memory.put({ leaving: null });
    return memory.out ? this.#silent() : null;
  }

  async #agree(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    if (memory.token === null) {
      // Where this cannot be written, no token is asked for.
      await memory.put({ url: memory.url });
      const given = await this.hub.enrol(this.enrolment);
      if (given instanceof Refusal) {
        if (given.unauthorised) memory.complain("the hub does not accept the enrolment token");
        return given;
      }
      const [token, terms] = given;
      let why = "";
      await memory.load((kept) => {
        why = memory.out || kept.out ? "" : memory.disagreement(kept, terms);
        if (why || memory.out || kept.out) kept.leaving = token; // it is of no use
        else k.adopt(kept, memory.url, token, terms);
      });
      if (why) {
        memory.complain(why);
        return this.#later("TERMS_CHANGED", why, LONGEST_WAIT);
      }
    }
    if (memory.out) return this.#silent();
    const no = memory.terms && objection(memory.terms, memory.limits);
    if (no) memory.complain(`nothing is sent: ${no}`);
    return null;
  }

  async #fetch(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    const { token, terms } = memory;
    if (token === null || !terms) return this.#silent();
    // A tag that came with another token would tell which token the device had before.
    const [known, tag] = await memory.change((kept) => {
      const known = kept.modelOf === token;
      return [known, known && memory.round ? kept.tag : null] as const;
    });
    const given = await this.hub.model(token, terms, tag);
    if (given instanceof Refusal) return this.#forget(token, given);
    const [body, newTag, over] = given;
    let part: number | null = null;
    if (body) {
      if (terms.wire > 1) part = await (await later(import("./draws.js"))).partIn(terms, token, body as Uint8Array<ArrayBuffer>, known);
      const why = await this.#objection(terms, body);
      if (why instanceof Refusal) return why;
      if (why) {
        memory.complain(`the hub's newest model is not used: ${why}`);
        return this.#later("UNPROVEN", why);
      }
    }
    if (memory.out || memory.terms !== terms) return this.#silent(); // in the meantime
    await memory.settled();
    const kept = await memory.change((kept) => {
      if (body) k.moveOn(kept, body, newTag, memory.round?.lost ?? 0, token, part);
      kept.over = over;
      return kept;
    });
    memory.over = over;
    if (body) memory.use(kept, decodeModel(terms, body));
    return null;
  }

  /** Why a model is not used; empty if the hub's log proves it. */
  async #objection(terms: Terms, body: Uint8Array): Promise<string | Refusal> {
    const { memory, trust } = this;
    const { hub, log } = terms;
    if (!log) return trust.keys.length ? "its terms have no log, and the app asks for witnesses" : "";
    const seen = await memory.change(({ heads }) => heads?.[hub] ?? null);
    const { check, Unproven } = await later(import("./log.js"));
    const agreed = (logged: unknown) => {
      const first = termsOf(logged);
      return first.hub === hub && !Object.keys(changes(terms, first)).length;
    };
    try {
      for (const size of seen ? [null, seen.size] : [0]) {
        const given = await this.hub.log(size);
        if (given instanceof Refusal) return given;
        const head = await check(given, terms, agreed, seen, trust, Date.now() / 1000, [
          body as Uint8Array<ArrayBuffer>,
        ]);
        if (!head) continue;
        await memory.change((kept) => {
          const heads = (kept.heads ??= {});
          if (!((heads[hub]?.size ?? 0) > head.size)) heads[hub] = head; // another page may have seen a newer one
        });
        return "";
      }
    } catch (error) {
      if (error instanceof NoAnswer) throw error;
      if (error instanceof Unproven) {
        const { conflict } = error;
        if (conflict) await memory.change((kept) => void ((kept.conflicts ??= {})[hub] ??= conflict));
        return error.message;
      }
      return "what it says about its log cannot be read";
    }
    return "nothing proves that the log only grew";
  }

  async #report(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    const waiting = await memory.change((kept) => kept.messages.filter(({ outcome }) => outcome === null));
    for (const message of waiting) {
      const { token, round } = memory;
      if (token === null || !round || memory.out) return this.#silent();
      const fresh = message.round === round.model.round && !memory.over && !memory.silence();
      if (message.hub !== round.terms.hub || !(fresh || message.sent !== null)) continue;
      const { number } = message;
      const may = await memory.change((kept) => {
        const may = kept.token === token && !memory.out && k.sending(kept, number, memory.limit, Date.now());
        memory.spent = k.spent(kept);
        return may;
      });
      if (!may) continue;
      if (memory.out) return this.#silent();
      const outcome = await this.hub.report(token, message.round, message.body);
      if (outcome instanceof Refusal) {
        if (outcome.notCounted) await memory.change((kept) => k.answered(kept, number, null));
        return this.#forget(token, outcome);
      }
      await memory.change((kept) => k.answered(kept, number, outcome));
      if (outcome === k.COUNTED) this.#sent++;
      else if (outcome === k.OVER) {
        memory.over = true;
        await memory.put({ over: true });
      } else if (outcome === k.TOO_LATE || outcome === k.NOT_DUE) {
        return this.#told("STALE", pauseBelow(2), "the message came too late");
      } else {
        memory.complain("the hub refused a message");
        return new Refusal("report: refused");
      }
    }
    return null;
  }

  async #forget(token: string, refusal: Refusal): Promise<Refusal> {
    if (refusal.unauthorised) {
      await this.memory.change((kept) => k.forgetToken(kept, token));
      this.memory.token = null;
    }
    return refusal;
  }
}

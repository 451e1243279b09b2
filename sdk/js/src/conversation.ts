/** Synchronisation of a device with its hub: enrol, fetch the model, send messages, leave. */

import { Backoff, LONGEST_WAIT, monotonic } from "./backoff.js";
import { type HubClient, Refusal } from "./connection.js";
import { type Draw, ownDraw, partIn } from "./draws.js";
import { NoAnswer } from "./errors.js";
import * as k from "./kept.js";
import { gatewayKeys, objection as objectionOfLog } from "./log.js";
import type { Memory } from "./memory.js";
import { decodeModel } from "./messages.js";
import type { Bytes } from "./oblivious/bytes.js";
import { objection as objectionOfRelay } from "./relay.js";
import { changes, objection, type Terms, termsOf } from "./terms.js";
import { Purse } from "./tokens.js";
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

/** The requests of a synchronisation, one after the other. */
export class Conversation {
  backoff = new Backoff();
  #sent = 0;
  #last: [State, string] = ["RETRY", "waits"];
  /** The tokens of this synchronisation, where the terms have some. */
  #purse: Purse | null = null;

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
      for (const step of [this.#lookAround, this.#takeLeave, this.#agree, this.#buy, this.#fetch, this.#report]) {
        const { token } = memory;
        const stop = await step.call(this);
        if (stop instanceof Refusal) {
          if (stop.unauthorised && token !== null) {
            await memory.change((kept) => k.forgetToken(kept, token));
            memory.token = null;
          }
          // Of a relay to which too few came: nobody is overloaded.
          if (stop.reason === "too-few") return this.#told("RETRY", POLL / 2 + pauseBelow(POLL), stop.why);
          return await this.#later("RETRY", stop.why, stop.retryAfter);
        }
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
    // The token is encrypted to no other gateway than that of the hub that it is of.
    const { leavingTerms } = await memory.change((kept) => kept);
    const why = leavingTerms && (await this.#wrongWay(leavingTerms));
    if (why) return why;
    const refusal = await this.hub.leave(memory.leaving);
    if (refusal) return refusal;
    memory.leaving = null;
    await memory.put({ leaving: null, leavingTerms: null });
    return memory.out ? this.#silent() : null;
  }

  async #agree(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    if (memory.token === null) {
      const { store } = memory;
      const enrolled = store.alone ? await store.alone(() => this.#enrol()) : await this.#enrol();
      if (enrolled === undefined) return this.#told("RETRY", 1 + pauseBelow(2), "another page enrols this device");
      if (enrolled) return enrolled;
    }
    if (memory.out) return this.#silent();
    const no = memory.terms && objection(memory.terms, memory.limits);
    if (no) memory.complain(`nothing is sent: ${no}`);
    return null;
  }

  /** Ask for a token of the hub, unless another page has one by now. */
  async #enrol(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    // Where this cannot be written, no token is asked for.
    await memory.load();
    if (memory.token !== null || memory.out) return null;
    const given = await this.hub.enrol(this.enrolment);
    if (given instanceof Refusal) {
      if (given.unauthorised) memory.complain("the hub does not accept the enrolment token");
      return given;
    }
    const [token, terms] = given;
    let why = "";
    await memory.load((kept) => {
      why = memory.out || kept.out ? "" : memory.disagreement(kept, terms);
      if (why || memory.out || kept.out) Object.assign(kept, { leaving: token, leavingTerms: terms }); // it is of no use
      else k.adopt(kept, memory.url, token, terms);
    });
    if (why) {
      memory.complain(why);
      return this.#later("TERMS_CHANGED", why, LONGEST_WAIT);
    }
    return null;
  }

  /** Look at the relay, and buy a token, where the terms have them. */
  async #buy(): Promise<Synced | Refusal | null> {
    const { memory, hub } = this;
    const { token, terms } = memory;
    this.#purse = null;
    if (token === null || !terms) return null;
    if (!hub.relay && !terms.tokens) return null;
    const wrong = await this.#wrongWay(terms);
    if (wrong || !terms.tokens) return wrong;
    const purse = new Purse(memory, hub, terms, Refusal, (entry) => this.#objection(terms, [], entry));
    const refused = await purse.buy(token);
    if (refused) return refused;
    this.#purse = purse;
    return null;
  }

  /** Look at the relay, if everything goes through one; null where it is used. */
  async #wrongWay(terms: Terms): Promise<Synced | Refusal | null> {
    const { memory, hub } = this;
    hub.sized = false;
    try {
      const keys = () => memory.change(({ heads }) => gatewayKeys(terms, heads?.[terms.hub]));
      const why = hub.relay && (await objectionOfRelay(hub, terms, keys, () => this.#objection(terms, [])));
      if (!why) return null;
      if (typeof why !== "string") return why;
      memory.complain(why);
      return this.#later("RETRY", why, LONGEST_WAIT);
    } catch (error) {
      return new Refusal(`relay: no answer (${(error as Error).name})`);
    }
  }

  async #fetch(): Promise<Synced | Refusal | null> {
    const { memory } = this;
    const purse = this.#purse;
    const { token, terms } = memory;
    if (token === null || !terms) return this.#silent();
    // A tag that came with another token would tell which token the device had before.
    const [known, tag] = await memory.change((kept) => {
      const known = kept.modelOf === token;
      return [known, known && memory.round ? kept.tag : null] as const;
    });
    if (purse && !purse.late && memory.round && purse.tag === tag && purse.over === memory.over) return null;
    // With tokens, everybody asks alike: without one, and without a word about the model before.
    const given = await (purse ? this.hub.model("", terms, null) : this.hub.model(token, terms, tag));
    if (given instanceof Refusal) return given;
    const [body, newTag, over] = given;
    let part: number | null = null;
    let best: Bytes | null = null;
    if (body) {
      const { round } = decodeModel(terms, body);
      const drawing = await purse?.drawing(round);
      if (purse && drawing === undefined) return this.#told("STALE", pauseBelow(2), "an epoch began in this moment");
      if (purse || terms.due < 1 || terms.drawn_seeds || terms.checks) {
        const mine = drawing && drawing.round === round ? drawing : null;
        const draw: Draw | null = purse ? mine : await ownDraw(token, body);
        const ask = () => this.hub.model(purse ? "" : token, terms, null, "best");
        const drawn = await partIn(terms, draw, body, known || !!purse, ask);
        if (drawn instanceof Refusal) return drawn;
        [part, best] = drawn;
      }
      let why = await this.#objection(terms, best ? [body, best] : [body], drawing?.entry);
      if (why instanceof Refusal) return why;
      if (!why && purse && drawing) why = await purse.take(drawing);
      if (why) {
        memory.complain(`the hub's newest model is not used: ${why}`);
        return this.#later("UNPROVEN", why);
      }
    }
    if (memory.out || memory.terms !== terms) return this.#silent(); // in the meantime
    await memory.settled();
    const kept = await memory.change((kept) => {
      if (body) k.moveOn(kept, body, purse ? purse.tag : newTag, token, part, best);
      kept.over = over;
      return kept;
    });
    memory.over = over;
    if (body) memory.use(kept, decodeModel(terms, body));
    return null;
  }

  /** Why models, or what is said about tokens, are not used; empty if the hub's log proves them. */
  async #objection(terms: Terms, messages: readonly Bytes[], entry?: Bytes): Promise<string | Refusal> {
    const { memory, hub, trust } = this;
    if (!terms.log) return trust.keys.length ? "its terms have no log, and the app asks for witnesses" : "";
    return objectionOfLog({ memory, hub, trust, terms, Refusal, termsOf, changes }, messages, entry);
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
      const shown = await memory.change((kept) => {
        if (kept.token !== token || memory.out) return null;
        const shown = this.#purse ? this.#purse.shown(kept, message.round) : token;
        const may = shown && k.sending(kept, number, memory.limit, Date.now());
        return may ? shown : null;
      });
      if (!shown) continue;
      if (memory.out) return this.#silent();
      const outcome = await this.hub.report(shown, message.round, message.body);
      if (outcome instanceof Refusal) {
        if (outcome.notCounted) await memory.change((kept) => k.answered(kept, number, null));
        return outcome;
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
}

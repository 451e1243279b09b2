/**
 * A device's blind tokens: drawn, bought an epoch ahead, and shown with the one report that they draw (section 11 of the
 * wire format).
 *
 * Each step is kept before anything leaves that follows from it, so that a page which ends at any point goes on with the same bytes: *drawn*,
 * nonce and blinding of an epoch's token; *bought*, the answer made a token of it, and what undoes the blinding is
 * deleted; *drawing*, it is known by what it draws the round in which it is shown.
 */

import type { HubClient, Refusal } from "./connection.js";
import { type Draw, word } from "./draws.js";
import type { Kept } from "./kept.js";
import type { Memory } from "./memory.js";
import { type Bytes, concat, equal, fromBase64url, text, unhex } from "./oblivious/bytes.js";
import { type Asked, askFor, contentOf, drawKey, epochChallenge, four, headerOf, sha256, tokenOf } from "./oblivious/tokens.js";
import { epochOf, type Terms } from "./terms.js";
import { pauseBelow } from "./words.js";

/** Probability with which a synchronisation buys the token of the next epoch. */
const AHEAD = 0.5;
/** Longest answer about tokens, in bytes. */
const LONGEST = 4096;
/** Bytes of the hash that follows the issuer's key in an offer. */
const HASH = 32;

/** What the tokens of an epoch draw by. */
interface Beacon {
  readonly secret: Bytes;
  readonly reports: Bytes;
  readonly sales: number;
}

/** What decides on the part of a token in its epoch. */
export interface Drawing extends Draw {
  readonly epoch: number;
  /** The round that it is for. */
  readonly round: number;
  /** The hub had committed to it. */
  readonly committed: boolean;
  /** Entry of the log that has to say so. */
  readonly entry: Bytes;
}

/** The tokens of one synchronisation. */
export class Purse {
  /** Entity tag of the hub's model, and whether training is over. */
  tag = "";
  over = false;
  /** A token of the open epoch has come: what the device does with the model depends on it. */
  late = false;
  #bought = false;
  #round = 0;
  #beacon: Beacon | null = null;

  /**
   * @param Refused What a request comes to that says nothing.
   * @param objection Why an entry of the hub's log about tokens, or the log, is not used; empty if it is.
   */
  constructor(
    private readonly memory: Memory,
    private readonly hub: HubClient,
    private readonly terms: Terms,
    private readonly Refused: typeof Refusal,
    private readonly objection: (entry?: Bytes) => Promise<string | Refusal>,
  ) {}

  /**
   * Buy a token of the next epoch, at most one a synchronisation.
   *
   * @returns Why nothing more is asked for now; null if all is well.
   */
  async buy(token: string): Promise<Refusal | null> {
    const { memory, hub, terms, Refused } = this;
    const answer = await hub.ask("GET", "/v1/tokens", "", LONGEST);
    if (answer.status !== 200) return Refused.of("tokens", answer);
    let offer: Bytes | null = null;
    let now = 0;
    try {
      const { round, state, etag, epoch, offer: sold, beacon } = JSON.parse(new TextDecoder().decode(answer.body));
      if (!(Number.isInteger(round) && round >= 0 && round < 2 ** 32)) throw new RangeError();
      this.#round = round;
      now = epochOf(terms, round);
      if (epoch === now + 1) offer = fromBase64url(sold);
      this.tag = String(etag);
      this.over = state === "done" || state === "halted";
      if (beacon) {
        const [secret, reports] = [fromBase64url(beacon.secret), fromBase64url(beacon.reports)];
        if (secret.length !== HASH || reports.length !== HASH || !(beacon.sales >>> 0 === beacon.sales)) throw new RangeError();
        this.#beacon = { secret, reports, sales: beacon.sales };
      }
    } catch {
      return new Refused("tokens: the hub's answer cannot be read");
    }
    const wanted = await memory.change((kept) => this.#wanted(kept, now, offer));
    if (wanted === "") return null;
    const epoch = wanted ? now : now + 1;
    let asked = wanted;
    if (!asked) {
      const why = await this.objection(concat(Uint8Array.of(3), four(epoch), await sha256(offer!)));
      if (typeof why !== "string") return why;
      if (why) {
        memory.complain(`no token is bought: ${why}`); // one that was made for this device would mark its token
        return null;
      }
      if (hub.sized) return null;
      const drawn = await askFor(offer!.slice(0, -HASH), await epochChallenge(terms.hub, epoch, offer!.slice(-HASH)));
      if (!drawn) return new Refused("tokens: the hub's key is none");
      const fresh = { offer: offer!, asked: drawn, token: null, beacon: null, round: null };
      const one = await memory.change((kept) => {
        const { tokens } = (kept.purse ??= { tokens: {} });
        const [name, changed] = [this.#name(epoch), kept.heads?.[terms.hub]?.keys?.[3]];
        // A token of a key that was changed twice: the log names the newest change alone.
        const newest = changed && equal(unhex(changed.slice(84, 148)), drawn.content.slice(66, 98));
        if (newest && tokens[name] && !equal(tokens[name].offer, offer!)) delete tokens[name];
        return (tokens[name] ??= fresh); // another page may have drawn one: this device has one an epoch
      });
      if (!equal(one.offer, offer!)) {
        memory.complain(`the hub changed the key of epoch ${epoch}`);
        return null;
      }
      asked = one.asked;
      if (!asked) return null;
    }
    const sold = await hub.ask("POST", `/v1/token/${epoch}`, token, LONGEST, {}, asked.request);
    this.#bought = true;
    const other = sold.reason === "other-purchase";
    if (other) memory.complain("the hub sold another token of this epoch");
    // "wrong-epoch", or "malformed": the key was changed.
    if (other || /epoch|malf/.test(sold.reason)) {
      if (other || epoch === now) await this.#keep(epoch, asked, null);
      return null;
    }
    if (sold.status !== 200) return Refused.of("token", sold);
    const bought = await tokenOf(asked, sold.body);
    if (!bought) return new Refused("token: the hub's answer makes no token");
    await this.#keep(epoch, asked, bought);
    this.late = epoch === now;
    return null;
  }

  /** What decides in a round; null: this device has no token for it; undefined: an epoch began in this moment. */
  async drawing(round: number): Promise<Drawing | null | undefined> {
    const { terms } = this;
    const epoch = epochOf(terms, round);
    if (epoch !== epochOf(terms, this.#round)) return undefined;
    const beacon = this.#beacon;
    const token = await this.memory.change((kept) => kept.purse?.tokens[this.#name(epoch)]?.token);
    if (!token || !beacon || beacon.sales < terms.least_sales) return null;
    const { secret, reports, sales } = beacon;
    const challenge = await epochChallenge(terms.hub, epoch, await sha256(secret));
    const draw = { key: await drawKey(token), beacon: await sha256(concat(text("fedrank/beacon"), secret, reports)) };
    const turn = Math.floor(((await word(draw, "fedrank/round")) * terms.tokens) / 2 ** 32);
    return {
      ...draw,
      epoch,
      round: (epoch - 1) * terms.tokens + 1 + turn,
      committed: equal(contentOf(token).slice(34, 66), challenge),
      entry: concat(Uint8Array.of(5), four(epoch), draw.beacon, four(sales)),
    };
  }

  /** Have a token draw by what the log has; why it does not, empty if it does. */
  take({ epoch, round, beacon, committed }: Drawing): Promise<string> {
    return this.memory.change((kept) => {
      const one = kept.purse?.tokens[this.#name(epoch)];
      if (!one) return ""; // the log has just said that its key was changed
      if (!committed && !one.beacon && kept.heads?.[this.terms.hub]?.keys?.[3]) {
        one.token = null; // it may be of a key that was changed twice
        return "";
      }
      if (!committed) return `the hub shows another secret of epoch ${epoch}`;
      if (one.beacon && !equal(one.beacon, beacon)) return `the hub changed the draws of epoch ${epoch}`;
      Object.assign(one, { beacon, round });
      return "";
    });
  }

  /** The header that shows the token of a round's message; null: there is none now. */
  shown(kept: Kept, round: number): string | null {
    const one = kept.purse?.tokens[this.#name(epochOf(this.terms, round))];
    // Whoever sees a purchase and a report together, or a size of the log and a report, may think that they belong
    // together. With any other report of its epoch a token would tell that both are of one device.
    return this.#bought || this.hub.sized || !one?.token || one.round !== round ? null : headerOf(one.token);
  }

  #name(epoch: number): string {
    return `${this.terms.hub} ${epoch}`;
  }

  /** What is to be asked for again in this epoch; null: a token of the next is to be bought; empty: none is. */
  #wanted(kept: Kept, now: number, offer: Bytes | null): Asked | null | "" {
    const { tokens } = (kept.purse ??= { tokens: {} });
    for (const name in tokens) {
      const [hub, epoch] = name.split(" ");
      if (hub === this.terms.hub && Number(epoch) < now - 1) delete tokens[name];
    }
    if (this.over || this.memory.silence()) return "";
    const lost = tokens[this.#name(now)]?.asked; // the answer was, as the epoch before ended
    if (lost) return lost;
    const next = tokens[this.#name(now + 1)];
    // Of another offer than the one that was bought of, the log says whether the issuer's key was changed.
    if (!offer || (next && !next.asked && equal(next.offer, offer))) return "";
    // At a random moment, so that nothing follows from when.
    return next || pauseBelow(1) < AHEAD ? null : "";
  }

  #keep(epoch: number, asked: Asked, token: Bytes | null): Promise<void> {
    return this.memory.change((kept) => {
      const one = kept.purse?.tokens[this.#name(epoch)];
      if (one?.asked && equal(one.asked.request, asked.request)) Object.assign(one, { asked: null, token });
    });
  }
}

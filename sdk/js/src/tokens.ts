/**
 * A device's blind tokens: drawn, bought, and bound to a message before they are shown (section 11 of the wire format).
 *
 * Each step is kept before anything leaves that follows from it, so that a page which ends at any point goes on with the same bytes: *drawn*,
 * nonce and blinding of an epoch's token; *bought*, the answer made a token of it, and what undoes the blinding is
 * deleted; *bound*, it belongs to the message of one round, and is shown with no other.
 */

import type { HubClient, Refusal } from "./connection.js";
import type { Kept } from "./kept.js";
import type { Memory } from "./memory.js";
import { type Bytes, equal, fromBase64url } from "./oblivious/bytes.js";
import { type Asked, askFor, epochChallenge, headerOf, tokenOf } from "./oblivious/tokens.js";
import { objection as objectionOfRelay } from "./relay.js";
import type { Terms } from "./terms.js";
import { pauseBelow } from "./words.js";

/** Probability with which a synchronisation buys the token of the next epoch. */
const AHEAD = 0.5;
/** Longest time for which a token of this epoch that came through a relay is not shown, in milliseconds. */
const RIPENS = 60_000;
/** Longest answer about tokens, in bytes. */
const LONGEST = 4096;

/** The tokens of one synchronisation. */
export class Purse {
  /** Entity tag of the hub's model, and whether training is over. */
  tag = "";
  over = false;
  #bought = false;

  /**
   * @param Refused What a request comes to that says nothing.
   * @param objection Why a key of an epoch is not used; empty if the hub's log has it.
   */
  constructor(
    private readonly memory: Memory,
    private readonly hub: HubClient,
    private readonly terms: Terms,
    private readonly Refused: typeof Refusal,
    private readonly objection: (key: readonly [number, Bytes]) => Promise<string | Refusal>,
  ) {}

  /**
   * Look at the relay, where there is one, and buy a token of this epoch or the next, at most one a synchronisation.
   *
   * @returns Why nothing more is asked for now; empty if all is well.
   */
  async buy(token: string): Promise<string | Refusal> {
    const { memory, hub, terms, Refused } = this;
    hub.sized = false;
    try {
      const why = hub.relay && (await objectionOfRelay(hub, terms));
      if (why) memory.complain(why);
      if (why || !terms.tokens) return why ?? "";
    } catch (error) {
      return new Refused(`relay: no answer (${(error as Error).name})`);
    }
    const answer = await hub.ask("GET", "/v1/tokens", "", LONGEST);
    if (answer.status !== 200) return Refused.of("tokens", answer);
    const keys = new Map<number, Bytes>();
    let now = 0;
    try {
      const given = JSON.parse(new TextDecoder().decode(answer.body));
      now = Math.floor(given.round / terms.tokens);
      // Keys of other epochs are no business of a device, and would fill its store.
      for (const epoch of [now, now + 1]) if (epoch in given.keys) keys.set(epoch, fromBase64url(given.keys[epoch]));
      this.tag = String(given.etag);
      this.over = given.state === "done";
      if (!(given.round >= 0 && given.round < 2 ** 32)) throw new RangeError();
    } catch {
      return new Refused("tokens: the hub's answer cannot be read");
    }
    const wanted = await memory.change((kept) => this.#wanted(kept, now, keys));
    if (typeof wanted !== "number") {
      if (wanted) memory.complain(wanted);
      return wanted;
    }
    const key = keys.get(wanted)!;
    const why = await this.objection([wanted, key]);
    if (typeof why !== "string") return why;
    if (why) {
      memory.complain(`no token is bought: ${why}`); // one that was made for this device would mark its token
      return "";
    }
    if (hub.sized) return "";
    const drawn = await askFor(key, await epochChallenge(terms.hub, wanted));
    if (!drawn) return new Refused("tokens: the hub's key is none");
    const asked = await memory.change((kept) => {
      const { tokens } = (kept.purse ??= { tokens: {}, issuers: {} });
      // Another page may have drawn one: this device has one an epoch.
      return (tokens[this.#name(wanted)] ??= { asked: drawn, token: null, ripe: 0, round: null }).asked;
    });
    if (!asked) return "";
    const sold = await hub.ask("POST", `/v1/token/${wanted}`, token, LONGEST, {}, asked.request);
    this.#bought = true;
    if (sold.reason === "other-purchase") {
      memory.complain("the hub sold this device another token of this epoch; it does not report");
      await this.#keep(wanted, asked, null, 0);
      return "";
    }
    if (sold.status !== 200) return sold.reason === "wrong-epoch" ? "" : Refused.of("token", sold);
    const bought = await tokenOf(asked, sold.body);
    if (!bought) return new Refused("token: the hub's answer makes no token");
    // A token of this epoch is bought when a report may be waiting for it: some time lies between the two.
    await this.#keep(wanted, asked, bought, hub.relay && wanted === now ? Date.now() + pauseBelow(RIPENS) : 0);
    return "";
  }

  /** The header that shows the token of a round's message, which it belongs to from now on; null: there is none now. */
  shown(kept: Kept, round: number): string | null {
    const one = kept.purse?.tokens[this.#name(Math.floor(round / this.terms.tokens))];
    // Whoever sees a purchase and a report together, or a size of the log and a report, may think that they belong
    // together.
    if (this.#bought || this.hub.sized || !one?.token || (one.round ?? round) !== round) return null;
    const left = one.ripe - Date.now();
    if (left > 0 && left <= RIPENS) return null; // longer than any: it was bought while the clock was ahead
    one.round = round;
    return headerOf(one.token);
  }

  #name(epoch: number): string {
    return `${this.terms.hub} ${epoch}`;
  }

  /** The epoch whose token is to be bought; as text, why none is, empty where there is none to buy. */
  #wanted(kept: Kept, now: number, keys: Map<number, Bytes>): number | string {
    const { tokens, issuers } = (kept.purse ??= { tokens: {}, issuers: {} });
    for (const [epoch, key] of keys) {
      if (!equal((issuers[this.#name(epoch)] ??= key), key)) {
        return `the hub changed the key of the tokens of epoch ${epoch}; none is bought or shown`;
      }
    }
    for (const table of [tokens, issuers]) {
      for (const name in table) {
        const [hub, epoch] = name.split(" ");
        if (hub === this.terms.hub && Number(epoch) < now - 1) delete table[name];
      }
    }
    if (this.over || this.memory.silence()) return "";
    for (const epoch of [now, now + 1]) {
      const one = tokens[this.#name(epoch)];
      // The next epoch's is bought at a random moment of this one, so that nothing follows from when.
      if (keys.has(epoch) && (one ? one.asked : epoch === now || pauseBelow(1) < AHEAD)) return epoch;
    }
    return "";
  }

  #keep(epoch: number, asked: Asked, token: Bytes | null, ripe: number): Promise<void> {
    return this.memory.change((kept) => {
      const one = kept.purse?.tokens[this.#name(epoch)];
      if (one?.asked && equal(one.asked.request, asked.request)) Object.assign(one, { asked: null, token, ripe });
    });
  }
}

/**
 * What a device draws, and its hub can draw again: whether it is due in a round, whether it compares two models,
 * and what it tries (12.3 to 12.8 of the wire format).
 */

import type { Refusal } from "./connection.js";
import type { Bytes } from "./oblivious/bytes.js";
import type { Terms } from "./terms.js";

const utf8 = (text: string) => new TextEncoder().encode(text);
const sha = (bytes: Bytes) => crypto.subtle.digest("SHA-256", bytes);

/** The word of a draw: the first four bytes of the HMAC of purpose and beacon, little-endian. */
export async function word(token: string, purpose: string, model: Bytes): Promise<number> {
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", await sha(utf8(token)), hmac, false, ["sign"]);
  const message = new Uint8Array([...utf8(purpose), ...new Uint8Array(await sha(model))]);
  return new DataView(await crypto.subtle.sign("HMAC", key, message)).getUint32(0, true);
}

/** What a device does in a round. */
export type Part = readonly [
  /** -1: it is not due; the seed that it has to try, or what names the best model; or null: it draws a seed by itself. */
  part: number | null,
  /** The message of the best model, where the device compares the newest with it. */
  best: Bytes | null,
];

/**
 * What a device does in a round.
 *
 * @param model The round's model message.
 * @param known The device has fetched a model with this token before.
 * @param askBest Asks for the best model; a refusal other than that there is none comes back.
 */
export async function partIn(
  terms: Terms,
  token: string,
  model: Bytes,
  known: boolean,
  askBest: () => Promise<readonly [Bytes | null, ...unknown[]] | Refusal>,
): Promise<Part | Refusal> {
  const drawn = async (purpose: string, share: number) =>
    share >= 1 || (share > 0 && (await word(token, purpose, model)) < Math.max(1, Math.floor(share * 2 ** 32)));
  if ((terms.due < 1 || terms.drawn_seeds) && !known) return [-1, null];
  if (!(await drawn("fedrank/due", terms.due))) return [-1, null];
  if (known && (await drawn("fedrank/check", terms.checks))) {
    const given = await askBest();
    if ("reason" in given) {
      if (given.reason !== "not-found") return given;
    } else {
      const best = given[0]!;
      if (best.slice(5).some((byte, i) => byte !== model[5 + i])) {
        return [new DataView(await sha(best.slice(5))).getUint32(0, true), best];
      }
    }
  }
  return [terms.drawn_seeds ? await word(token, "fedrank/seed", model) : null, null];
}

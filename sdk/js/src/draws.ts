/**
 * What a device draws, and its hub can draw again: whether it is due in a round, whether it compares two models,
 * and what it tries (11.12 and 12.3 to 12.8 of the wire format).
 */

import type { Refusal } from "./connection.js";
import { type Bytes, concat, text } from "./oblivious/bytes.js";
import { hmac } from "./oblivious/encapsulation.js";
import { sha256 } from "./oblivious/tokens.js";
import type { Terms } from "./terms.js";

/** The first four bytes as a number, little-endian. */
const numberIn = (bytes: Bytes) => new DataView(bytes.buffer).getUint32(0, true);

/** What decides: a key that belongs to the token which is shown, and what was not known when the device got it. */
export interface Draw {
  readonly key: Bytes;
  readonly beacon: Bytes;
}

/** What decides on a device that shows its own token, in a model's round. */
export async function ownDraw(token: string, model: Bytes): Promise<Draw> {
  return { key: await sha256(text(token)), beacon: await sha256(model) };
}

/** The word of a draw: the first four bytes of the HMAC of purpose and beacon, little-endian. */
export async function word({ key, beacon }: Draw, purpose: string): Promise<number> {
  return numberIn(await hmac(key, concat(text(purpose), beacon)));
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
 * @param draw What decides; null: the device takes no part.
 * @param model The round's model message.
 * @param known The device had its token before it could know what decides.
 * @param askBest Asks for the best model; a refusal other than that there is none comes back.
 */
export async function partIn(
  terms: Terms,
  draw: Draw | null,
  model: Bytes,
  known: boolean,
  askBest: () => Promise<readonly [Bytes | null, ...unknown[]] | Refusal>,
): Promise<Part | Refusal> {
  const drawn = async (purpose: string, share: number) =>
    share >= 1 || (share > 0 && (await word(draw!, purpose)) < Math.max(1, Math.floor(share * 2 ** 32)));
  if (!draw || ((terms.due < 1 || terms.drawn_seeds) && !known)) return [-1, null];
  if (!(await drawn("fedrank/due", terms.due))) return [-1, null];
  if (known && (await drawn("fedrank/check", terms.checks))) {
    const given = await askBest();
    if ("reason" in given) {
      if (given.reason !== "not-found") return given;
    } else {
      const best = given[0]!;
      if (best.slice(5).some((byte, i) => byte !== model[5 + i])) {
        return [numberIn(await sha256(best.slice(5))), best];
      }
    }
  }
  return [terms.drawn_seeds ? await word(draw, "fedrank/seed") : null, null];
}

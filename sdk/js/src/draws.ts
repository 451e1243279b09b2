/**
 * What a device draws, and its hub can draw again: whether it is due in a round, and what it tries (12.3 to 12.8 of the
 * wire format).
 *
 * A file of its own in the bundle, which a device loads where its hub's terms ask for it; it therefore imports nothing.
 */

import type { Terms } from "./terms.js";

const utf8 = (text: string) => new TextEncoder().encode(text);
const sha = (bytes: Uint8Array<ArrayBuffer>) => crypto.subtle.digest("SHA-256", bytes);

/** The word of a draw: the first four bytes of the HMAC of purpose and beacon, little-endian. */
export async function word(token: string, purpose: string, model: Uint8Array<ArrayBuffer>): Promise<number> {
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", await sha(utf8(token)), hmac, false, ["sign"]);
  const message = new Uint8Array([...utf8(purpose), ...new Uint8Array(await sha(model))]);
  return new DataView(await crypto.subtle.sign("HMAC", key, message)).getUint32(0, true);
}

/**
 * What a device does in a round.
 *
 * @param model The round's model message.
 * @param known The device has fetched a model with this token before.
 * @returns -1: it is not due; the seed that it has to try; or null: it is due, and draws a seed by itself.
 */
export async function partIn(
  terms: Terms,
  token: string,
  model: Uint8Array<ArrayBuffer>,
  known: boolean,
): Promise<number | null> {
  if (!known && model.slice(1, 5).some(Boolean)) return -1;
  const words = Math.max(1, Math.floor(terms.due * 2 ** 32));
  if (terms.due < 1 && (await word(token, "fedrank/due", model)) >= words) return -1;
  return terms.drawn_seeds ? word(token, "fedrank/seed", model) : null;
}

/** Answers that are read up to a length. */

import type { Bytes } from "./oblivious/bytes.js";

/** The body of an answer, cut after `limit` bytes and one more, which tells that it is too long. */
export async function bounded(response: Response, limit: number): Promise<Bytes> {
  const out: number[] = [];
  const reader = response.body?.getReader();
  while (reader && out.length <= limit) {
    const { done, value } = await reader.read();
    if (done) break;
    for (const byte of value.subarray(0, limit + 1 - out.length)) out.push(byte);
  }
  reader?.cancel().catch(() => {});
  return Uint8Array.from(out);
}

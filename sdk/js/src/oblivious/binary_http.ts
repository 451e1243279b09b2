/** Known-length messages of Binary HTTP (RFC 9292). */

import { type Bytes, concat, text } from "./bytes.js";

function integer(value: number): Bytes {
  if (value < 64) return Uint8Array.of(value);
  if (value < 16_384) return Uint8Array.of(64 | (value >> 8), value & 255);
  return Uint8Array.of(128 | (value >> 24), (value >> 16) & 255, (value >> 8) & 255, value & 255);
}

const sized = (data: Bytes): Bytes => concat(integer(data.length), data);

/** A request, padded with zeros to a length. @throws {RangeError} It is longer. */
export function encodeRequest(
  method: string,
  path: string,
  fields: readonly (readonly [string, string])[],
  content: Bytes,
  length: number,
): Bytes {
  const section = concat(...fields.flatMap(([name, value]) => [sized(text(name)), sized(text(value))]));
  const head = ["https", "", path].map((part) => sized(text(part)));
  const whole = concat(integer(0), sized(text(method)), ...head, sized(section), sized(content), integer(0));
  if (whole.length > length) throw new RangeError(`a request of ${whole.length} bytes does not fit into ${length}`);
  return concat(whole, new Uint8Array(length - whole.length));
}

/** A response. */
export interface BinaryResponse {
  readonly status: number;
  readonly fields: Map<string, string>;
  readonly content: Bytes;
}

/** The inverse, for responses; null if the bytes are none. */
export function decodeResponse(data: Bytes): BinaryResponse | null {
  let at = 0;
  const take = (count: number): Bytes => {
    if (at + count > data.length) throw new RangeError();
    at += count;
    return data.slice(at - count, at);
  };
  const number = (): number => {
    const first = take(1)[0];
    return take((1 << (first >> 6)) - 1).reduce((value, byte) => value * 256 + byte, first & 63);
  };
  const part = (): Bytes => (at < data.length ? take(number()) : new Uint8Array(0));
  try {
    if (number() !== 1) return null;
    const [status, section, content] = [number(), part(), part()];
    part();
    if (status < 200 || status > 599 || data.slice(at).some(Boolean)) return null;
    const fields = new Map<string, string>();
    const decoder = new TextDecoder();
    const end = at;
    data = section;
    for (at = 0; at < section.length; ) fields.set(decoder.decode(take(number())), decoder.decode(take(number())));
    at = end;
    return { status, fields, content };
  } catch {
    return null;
  }
}

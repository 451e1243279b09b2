/** Bytes and what is made of them. */

export type Bytes = Uint8Array<ArrayBuffer>;

export function concat(...parts: Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const text = (words: string): Bytes => new TextEncoder().encode(words) as Bytes;

/** Big-endian. */
export const toNumber = (data: Uint8Array): bigint =>
  BigInt(`0x${Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("")}`);

/** Big-endian, in so many bytes. */
export function fromNumber(number: bigint, length: number): Bytes {
  const data = new Uint8Array(length);
  for (let i = length - 1, rest = number; i >= 0; i--, rest >>= 8n) data[i] = Number(rest & 255n);
  return data;
}

export const equal = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && a.every((x, i) => x === b[i]);

export const unhex = (digits: string): Bytes =>
  Uint8Array.from(digits.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16)) as Bytes;

export const base64url = (data: Uint8Array): string =>
  btoa(String.fromCharCode(...data))
    .replaceAll("+", "-")
    .replaceAll("/", "_");

export const fromBase64url = (letters: string): Bytes =>
  Uint8Array.from(atob(letters.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0)) as Bytes;

/** Blind RSA signatures, RSABSSA-SHA384-PSS-Deterministic of RFC 9474: the client's part. */

import { base64url, type Bytes, concat, fromNumber, toNumber } from "./bytes.js";

const EXPONENT = 65_537n;
const HASH = 48;

const sha384 = async (data: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.digest("SHA-384", data));

/** base ** exponent modulo n. The exponent is public. */
function power(base: bigint, exponent: bigint, n: bigint): bigint {
  let result = 1n;
  for (let b = base % n, e = exponent; e; e >>= 1n, b = (b * b) % n) if (e & 1n) result = (result * b) % n;
  return result;
}

/** The inverse modulo n; 0 if there is none. */
export function inverseOf(a: bigint, n: bigint): bigint {
  let [r, next, t, after] = [n, a % n, 0n, 1n];
  while (next) [r, next, t, after] = [next, r % next, after, t - (r / next) * after];
  return r === 1n ? ((t % n) + n) % n : 0n;
}

/** EMSA-PSS-ENCODE with SHA-384, MGF1-SHA-384 and this salt (RFC 8017, Section 9.1.1), of at most so many bits. */
async function encoded(message: Bytes, bits: number, salt: Bytes): Promise<Bytes> {
  const length = Math.ceil(bits / 8);
  const digest = await sha384(concat(new Uint8Array(8), await sha384(message), salt));
  const block = concat(new Uint8Array(length - 2 * HASH - 2), Uint8Array.of(1), salt);
  for (let i = 0; i * HASH < block.length; i++) {
    const mask = await sha384(concat(digest, Uint8Array.of(0, 0, 0, i)));
    for (let j = 0; j < HASH && i * HASH + j < block.length; j++) block[i * HASH + j] ^= mask[j];
  }
  block[0] &= 0xff >> (8 * length - bits);
  return concat(block, digest, Uint8Array.of(0xbc));
}

/** A number in 1 .. n − 1, from the browser's cryptographic generator. */
function drawn(n: bigint, length: number): bigint {
  for (;;) {
    const number = toNumber(crypto.getRandomValues(new Uint8Array(length)));
    if (number > 0n && number < n) return number;
  }
}

/**
 * A message that hides another one, to be signed, and what undoes the hiding.
 *
 * @param n The signer's modulus.
 * @param given Salt and inverse of a test vector; drawn if they are not given.
 */
export async function blind(
  n: bigint,
  message: Bytes,
  given?: { salt: Bytes; inverse: bigint },
): Promise<{ blinded: Bytes; inverse: Bytes }> {
  const bits = n.toString(2).length;
  const length = Math.ceil(bits / 8);
  const salt = given?.salt ?? crypto.getRandomValues(new Uint8Array(HASH));
  const whole = toNumber(await encoded(message, bits - 1, salt));
  let inverse = given?.inverse ?? 0n;
  let r = inverse && inverseOf(inverse, n);
  while (!r) {
    inverse = drawn(n, length);
    r = inverseOf(inverse, n);
  }
  return { blinded: fromNumber((whole * power(r, EXPONENT, n)) % n, length), inverse: fromNumber(inverse, length) };
}

/** The signature of a message from the signer's answer; null if the answer makes none. */
export async function finalise(n: bigint, message: Bytes, signed: Bytes, inverse: Bytes): Promise<Bytes | null> {
  if (signed.length !== inverse.length) return null;
  const signature = fromNumber((toNumber(signed) * toNumber(inverse)) % n, inverse.length);


  const key = await crypto.subtle.importKey(
    "jwk",
    { kty: "RSA", n: base64url(fromNumber(n, inverse.length)).replace(/=+$/, ""), e: "AQAB", alg: "PS384", ext: true },
    { name: "RSA-PSS", hash: "SHA-384" },
    false,
    ["verify"],
  );
  const good = await crypto.subtle.verify({ name: "RSA-PSS", saltLength: HASH }, key, signature, message);
  return good ? signature : null;
}

/** Tokens of type 0x0002 (RFC 9578), with the forms of RFC 9577. Section 11 of the wire format. */

import { blind, finalise } from "./blind_rsa.js";
import { base64url, type Bytes, concat, equal, fromNumber, text, toNumber, unhex } from "./bytes.js";

const TYPE = Uint8Array.of(0, 2);
// SubjectPublicKeyInfo with RSASSA-PSS, SHA-384 and a salt of 48 bytes; all keys of 2048 bits begin and end alike.
const BEFORE = unhex(
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b06096086480165" +
    "03040202a2030201300382010f003082010a0282010100",
);
const AFTER = unhex("0203010001");

export const sha256 = async (data: Bytes): Promise<Bytes> => new Uint8Array(await crypto.subtle.digest("SHA-256", data));

/** The modulus of a published key; null if it is not one of RSASSA-PSS with 2048 bits. */
export function modulusIn(key: Bytes): bigint | null {
  const n = key.slice(BEFORE.length, key.length - AFTER.length);
  const good = n.length === 256 && n[0] > 127 && n[255] % 2 === 1 && equal(key, concat(BEFORE, n, AFTER));
  return good ? toNumber(n) : null;
}

/** A token challenge (RFC 9577, Section 2.1). */
export function challengeOf(issuer: string, context: Bytes, origin = ""): Bytes {
  const [name, origins] = [text(issuer), text(origin)];
  const two = (n: number) => Uint8Array.of(n >> 8, n & 255);
  return concat(TYPE, two(name.length), name, Uint8Array.of(context.length), context, two(origins.length), origins);
}

/** SHA-256 of the challenge that the tokens of a hub's epoch answer; `commitment` is the hash of the epoch's secret. */
export async function epochChallenge(hub: string, epoch: number, commitment: Bytes): Promise<Bytes> {
  return sha256(challengeOf(hub, await sha256(concat(text("fedrank-epoch"), four(epoch), commitment))));
}

/** The key of the draws of a token: the number that it is spent under, 63 bits of the hash of its content. */
export async function drawKey(token: Bytes): Promise<Bytes> {
  const hash = await sha256(contentOf(token));
  return hash.slice(0, 8).map((byte, i) => (byte >> 1) | ((hash[i - 1] & 1) << 7));
}

/** A token without its signature, which is what the signature is about. */
export const contentOf = (token: Bytes): Bytes => token.slice(0, 98);

/** A number in four bytes, big-endian. */
export const four = (number: number): Bytes => fromNumber(BigInt(number), 4);

/** A token that was asked for. It must be kept before the request leaves, and sent again as it is. */
export interface Asked {
  readonly key: Bytes;
  readonly content: Bytes;
  /** With it, whoever signed can tell the token: it never leaves the device. */
  readonly inverse: Bytes;
  readonly request: Bytes;
}

/** Begin to buy a token; `given` is for test vectors. Null if the key is none. */
export async function askFor(
  key: Bytes,
  challenge: Bytes,
  given?: { nonce: Bytes; salt: Bytes; inverse: bigint },
): Promise<Asked | null> {
  const n = modulusIn(key);
  if (n === null) return null;
  const id = await sha256(key);
  const content = concat(TYPE, given?.nonce ?? crypto.getRandomValues(new Uint8Array(32)), challenge, id);
  const { blinded, inverse } = await blind(n, content, given);
  return { key, content, inverse, request: concat(TYPE, id.slice(-1), blinded) };
}

/** The token, from the issuer's response; null if the response makes none. */
export async function tokenOf(asked: Asked, response: Bytes): Promise<Bytes | null> {
  const n = modulusIn(asked.key);
  const signature = n && (await finalise(n, asked.content, response, asked.inverse));
  return signature ? concat(asked.content, signature) : null;
}

/** The value of the header `Authorization` that shows a token. */
export const headerOf = (token: Uint8Array): string => `PrivateToken token="${base64url(token)}"`;

/**
 * Oblivious HTTP (RFC 9458) with HPKE (RFC 9180) on Web Crypto: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM.
 *
 * Web Crypto has X25519, HKDF, HMAC and AES-GCM; here is how RFC 9180 puts them together, for one message each way.
 */

import { type Bytes, concat, text } from "./bytes.js";

const KEM = Uint8Array.of(0, 0x20);
const SUITE = Uint8Array.of(0, 0x20, 0, 1, 0, 1);
const HEADER = concat(Uint8Array.of(1), SUITE);
const INFO = concat(text("message/bhttp request"), Uint8Array.of(0), HEADER);
const RESPONSE = text("message/bhttp response");
const EMPTY = new Uint8Array(0);

/** HMAC with SHA-256. */
export async function hmac(key: Bytes, data: Bytes): Promise<Bytes> {
  // An HMAC pads its key with zeros: no key is a key of zeros, which Web Crypto asks for.
  const raw = key.length ? key : new Uint8Array(32);
  const made = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", made, data));
}

/** HKDF-Expand, of at most 32 bytes. */
const expand = async (prk: Bytes, info: Bytes, length: number): Promise<Bytes> =>
  (await hmac(prk, concat(info, Uint8Array.of(1)))).slice(0, length);

const VERSION = text("HPKE-v1");
const labeledExtract = (salt: Bytes, suite: Bytes, label: string, ikm: Bytes): Promise<Bytes> =>
  hmac(salt, concat(VERSION, suite, text(label), ikm));
const labeledExpand = (prk: Bytes, suite: Bytes, label: string, info: Bytes, length: number): Promise<Bytes> =>
  expand(prk, concat(Uint8Array.of(0, length), VERSION, suite, text(label), info), length);

const aes = (key: Bytes, use: "encrypt" | "decrypt"): Promise<CryptoKey> =>
  crypto.subtle.importKey("raw", key, "AES-GCM", false, [use]);

/** A request that was encapsulated. */
export interface Encapsulated {
  readonly request: Bytes;
  /** The response in an encapsulated one; null if it was not made for this request. */
  open(response: Bytes): Promise<Bytes | null>;
}

/**
 * Encrypt a request to a gateway.
 *
 * @param gateway The gateway's key, 32 bytes.
 * @param pair Key pair in place of a fresh one, for test vectors.
 */
export async function encapsulate(gateway: Bytes, request: Bytes, pair?: CryptoKeyPair): Promise<Encapsulated> {
  const own = pair ?? ((await crypto.subtle.generateKey("X25519", false, ["deriveBits"])) as CryptoKeyPair);
  const sender = new Uint8Array(await crypto.subtle.exportKey("raw", own.publicKey));
  const receiver = await crypto.subtle.importKey("raw", gateway, "X25519", false, []);
  const algorithm = { name: "X25519", public: receiver } as unknown as AlgorithmIdentifier;
  const shared = new Uint8Array(await crypto.subtle.deriveBits(algorithm, own.privateKey, 256));
  const kem = concat(text("KEM"), KEM);
  const eae = await labeledExtract(EMPTY, kem, "eae_prk", shared);
  const key = await labeledExpand(eae, kem, "shared_secret", concat(sender, gateway), 32);
  const suite = concat(text("HPKE"), SUITE);
  const context = concat(
    Uint8Array.of(0),
    await labeledExtract(EMPTY, suite, "psk_id_hash", EMPTY),
    await labeledExtract(EMPTY, suite, "info_hash", INFO),
  );
  const secret = await labeledExtract(key, suite, "secret", EMPTY);
  const sealing = await aes(await labeledExpand(secret, suite, "key", context, 16), "encrypt");
  const iv = await labeledExpand(secret, suite, "base_nonce", context, 12);
  const exporter = await labeledExpand(secret, suite, "exp", context, 32);
  const sealed = new Uint8Array(await crypto.subtle.encrypt({ name: "AES-GCM", iv }, sealing, request));
  const back = await labeledExpand(exporter, suite, "sec", RESPONSE, 16);
  return {
    request: concat(HEADER, sender, sealed),
    async open(response) {
      const prk = await hmac(concat(sender, response.slice(0, 16)), back);
      const opening = await aes(await expand(prk, text("key"), 16), "decrypt");
      const nonce = await expand(prk, text("nonce"), 12);
      try {
        const plain = await crypto.subtle.decrypt({ name: "AES-GCM", iv: nonce }, opening, response.slice(16));
        return new Uint8Array(plain);
      } catch {
        return null;
      }
    },
  };
}

/** The key in a gateway's key configuration (RFC 9458, Section 3); null if it is of another suite. */
export function gatewayKeyIn(configuration: Bytes): Bytes | null {
  const key = configuration.slice(5, 37);
  const whole = concat(Uint8Array.of(0, 41, 1), KEM, key, Uint8Array.of(0, 4, 0, 1, 0, 1));
  return whole.length === configuration.length && whole.every((byte, i) => byte === configuration[i]) ? key : null;
}

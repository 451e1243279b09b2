// Blind signatures, tokens and encapsulation give what the appendices of RFC 9474, RFC 9578 and RFC 9458 print.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { decodeResponse, encodeRequest } from "../build/oblivious/binary_http.js";
import { blind, finalise, inverseOf } from "../build/oblivious/blind_rsa.js";
import { equal, toNumber, unhex } from "../build/oblivious/bytes.js";
import { encapsulate, gatewayKeyIn } from "../build/oblivious/encapsulation.js";
import { objection } from "../build/relay.js";
import { askFor, challengeOf, epochChallenge, headerOf, modulusIn, tokenOf } from "../build/oblivious/tokens.js";

const file = new URL("../../../tests/deploy/golden/oblivious-vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const hex = (data) => Buffer.from(data).toString("hex");

test("blind signatures of RFC 9474", async () => {
  const v = vectors.rfc9474;
  const n = BigInt(`0x${v.p}`) * BigInt(`0x${v.q}`);
  const given = { salt: unhex(v.salt), inverse: BigInt(`0x${v.inv}`) };
  const { blinded, inverse } = await blind(n, unhex(v.msg), given);
  assert.equal(hex(blinded), v.blinded_msg);
  assert.equal(hex(inverse), v.inv);
  assert.equal(hex(await finalise(n, unhex(v.msg), unhex(v.blind_sig), inverse)), v.sig);
  assert.equal(await finalise(n, unhex(v.msg), unhex(v.blinded_msg), inverse), null);
});

for (const [number, v] of vectors.rfc9578.entries()) {
  test(`tokens of RFC 9578, ${number}`, async () => {
    const n = modulusIn(unhex(v.pkS));
    const challenge = challengeOf(v.issuer, unhex(v.context), v.origin);
    assert.equal(hex(challenge), v.token_challenge);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", challenge));
    const inverse = inverseOf(BigInt(`0x${v.blind}`), n);
    const asked = await askFor(unhex(v.pkS), digest, { nonce: unhex(v.nonce), salt: unhex(v.salt), inverse });
    assert.equal(hex(asked.request), v.token_request);
    assert.equal(hex(await tokenOf(asked, unhex(v.token_response))), v.token);
    assert.equal(await tokenOf(asked, unhex(v.token_request).slice(3)), null);
    assert.match(headerOf(unhex(v.token)), /^PrivateToken token="[\w-]{472}"$/);
    assert.equal(await askFor(unhex(v.pkS).fill(0, 0, 1), digest), null);
  });
}

test("nonce, salt and blinding are drawn anew", async () => {
  const key = unhex(vectors.rfc9578[0].pkS);
  const challenge = await epochChallenge("ab".repeat(16), 7, new Uint8Array(32));
  const [one, other] = [await askFor(key, challenge), await askFor(key, challenge)];
  for (const part of ["content", "inverse", "request"]) assert.ok(!equal(one[part], other[part]));
  assert.ok(toNumber(one.inverse) < modulusIn(key));
});

test("encapsulation of RFC 9458", async () => {
  const v = vectors.rfc9458;
  // PKCS #8 and SubjectPublicKeyInfo of X25519 keys, which Web Crypto imports.
  const secret = unhex(`302e020100300506032b656e04220420${v.skE}`);
  const privateKey = await crypto.subtle.importKey("pkcs8", secret, "X25519", false, ["deriveBits"]);
  const raw = unhex(v.encapsulated_request).slice(7, 39);
  const publicKey = await crypto.subtle.importKey("raw", raw, "X25519", true, []);
  const sent = await encapsulate(unhex(v.pkR), unhex(v.request), { privateKey, publicKey });
  assert.equal(hex(sent.request), v.encapsulated_request);
  assert.equal(hex(await sent.open(unhex(v.encapsulated_response))), v.response);
  assert.equal(await sent.open(unhex(v.encapsulated_response).fill(0, 20, 21)), null);
  assert.deepEqual(decodeResponse(unhex(v.response)), { status: 200, fields: new Map(), content: new Uint8Array(0) });
});

test("requests are padded, and configurations are of one suite", () => {
  const one = encodeRequest("GET", "/v1/model", [["authorization", "x"]], new Uint8Array(3), 1024);
  assert.equal(one.length, 1024);
  assert.throws(() => encodeRequest("GET", "/", [], new Uint8Array(1024), 1024), RangeError);
  const key = vectors.rfc9458.pkR;
  assert.equal(hex(gatewayKeyIn(unhex(`0029010020${key}000400010001`))), key);
  assert.equal(gatewayKeyIn(unhex(`0029010020${key}000400010003`)), null);
  for (const bad of ["", "00", "0140", "014064", "0140c8ff", "0140c8000001"]) {
    assert.equal(decodeResponse(unhex(bad)), null, bad);
  }
});

test("a relay is asked again after a refusal", async () => {
  const right = vectors.rfc9458.pkR;
  const about = { batch: 3, keys: `0029010020${"11".repeat(32)}000400010001` };
  const terms = { batch: 3, gateway: right };
  const hub = { relay: "https://relay.example", timeout: 10 };
  const { fetch } = globalThis;
  globalThis.fetch = async () => new Response(JSON.stringify(about));
  const asked = (gateways = [right], log = async () => "not proven", own = terms) =>
    objection(hub, own, async () => gateways.map((one) => Uint8Array.from(Buffer.from(one, "hex"))), log);
  try {
    assert.match(await asked(), /another gateway/);
    assert.match(await asked([right], undefined, { ...terms, log: "22".repeat(32) }), /not proven/);
    assert.equal(hex(hub.gateway), right); // what was named is asked for the log alone
    const now = [right];
    const log = async () => {
      assert.equal(hex(hub.gateway), "11".repeat(32));
      now.unshift("11".repeat(32)); // it says that this is the new key
      return "";
    };
    assert.equal(await asked(now, log, { ...terms, log: "22".repeat(32) }), "");
    assert.equal(hex(hub.gateway), "11".repeat(32));
    hub.told = undefined;
    about.keys = `0029010020${right}000400010001`;
    about.batch = 2;
    assert.match(await asked(), /2 reports/);
    about.batch = 3;
    assert.equal(await asked(), "");
    assert.equal(hex(hub.gateway), right);
    about.batch = 1; // what it said and was right is not asked again
    assert.equal(await asked(), "");
    assert.equal(await asked(["33".repeat(32), right]), ""); // a relay that names the one before is a little late
    assert.equal(hex(hub.gateway), "33".repeat(32));
  } finally {
    globalThis.fetch = fetch;
  }
});

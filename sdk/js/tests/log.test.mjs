// A hub's log: the published vectors, and a hub that shows what is not true.

import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ConfigError, Device, MemoryStore } from "../build/index.js";
import { check, grew, included, leafHash, Unproven } from "../build/log.js";
import { changes, termsOf } from "../build/terms.js";
import { trustOf } from "../build/trust.js";
import { ENROLMENT, FakeHub } from "./fake_hub.mjs";

const file = new URL("../../../docs/reference/wire-log-vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

test("proofs of the vectors hold, and for nothing else", async () => {
  const { leaves, roots } = vectors.known;
  for (const { number, size, proof } of vectors.inclusion) {
    const leaf = await leafHash(bytes(leaves[number]));
    for (let claimed = 0; claimed < 9; claimed++) {
      assert.equal(await included(leaf, claimed, size, roots[size], proof.map(bytes)), claimed === number);
    }
  }
  for (const { old, size, proof } of vectors.consistency) {
    for (let claimed = 0; claimed < 9; claimed++) {
      assert.equal(await grew(claimed, roots[claimed], size, roots[size], proof.map(bytes)), claimed === old);
      assert.equal(await grew(old, roots[old], claimed, roots[claimed], proof.map(bytes)), claimed === size);
    }
  }
});

for (const { name, answer, seen, quorum, model, best, expect, terms: more } of vectors.answers) {
  test(`answer: ${name}`, async () => {
    const terms = termsOf({ ...vectors.terms, ...more });
    const agreed = (logged) => logged.hub === terms.hub && !Object.keys(changes(terms, termsOf(logged))).length;
    const trust = quorum ? trustOf(vectors.witnesses, quorum) : trustOf();
    const messages = [model, best].filter(Boolean).map(bytes);
    let got;
    try {
      const head = await check(answer, terms, agreed, seen, trust, vectors.now, messages);
      got = typeof head === "number" ? "more" : "proven";
    } catch (error) {
      got = error instanceof Unproven && error.conflict ? "conflict" : "wrong";
    }
    assert.equal(got, expect);
  });
}

test("a log that was put back begins with the terms, and is not of the future", async () => {
  const sha = (...parts) => createHash("sha256").update(Buffer.concat(parts.map((one) => Buffer.from(one)))).digest();
  const text = (one) => Buffer.from(one).toString("base64");
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = Buffer.from(publicKey.export({ format: "jwk" }).x, "base64url");
  const own = { ...vectors.terms, log: raw.toString("hex") };
  const right = (logged) => JSON.stringify(logged) === JSON.stringify(own);
  const answer = async (first, when, tail = 0) => {
    const said = Buffer.alloc(9, 6);
    said.writeBigUInt64BE(BigInt(when), 1);
    const entries = [Buffer.from("\u0001" + JSON.stringify(first)), said, Buffer.alloc(37, 2)];
    const [a, b, c] = await Promise.all(entries.map((one) => leafHash(one)));
    const line = `notices ${text(sha([0, 0, 0, 0, 0, 0, 0, 1], sha(said)))}`;
    const head = `fedrank/${own.hub}\n3\n${text(sha([1], sha([1], a, b), c))}\n${line}\n`;
    const id = sha(`fedrank/${own.hub}\n`, [1], raw).subarray(0, 4);
    const checkpoint = `${head}\n— fedrank/${own.hub} ${text(Buffer.concat([id, sign(null, Buffer.from(head), privateKey)]))}\n`;
    const notices = [{ number: 1, entry: text(said), proof: [text(a), text(c)] }];
    return { checkpoint, entries: entries.slice(tail).map(text), frontier: tail ? [text(a)] : [], notices };
  };
  const seen = { size: 9, root: "00".repeat(32), note: "", model: "", recovered: 0 };
  const now = 1_700_000_000;
  const checked = async (...of) => check(await answer(...of), own, right, seen, trustOf(), now, []);
  assert.equal((await checked(own, now + 86_399)).recovered, now + 86_399);
  await assert.rejects(checked(own, now + 86_401), /ahead/);
  await assert.rejects(checked({ ...own, sigma: 9 }, now), /terms/);
  assert.equal(await checked(own, now, 1), 0); // to be asked for with the first entry
  const inclusion = async (first) => {
    const given = await answer(first, now, 1);
    const whole = await answer(first, now);
    const [second, third] = await Promise.all(whole.entries.slice(1).map((one) => leafHash(Buffer.from(one, "base64"))));
    const asked = { ...given, terms: whole.entries[0], proof: [text(second), text(third)] };
    return check(asked, own, right, seen, trustOf(), now, []);
  };
  assert.equal((await inclusion(own)).recovered, now);
  await assert.rejects(inclusion({ ...own, sigma: 9 }), /terms/);
});

test("a number that JSON has and no other program reads is refused", async () => {
  const { answer, seen, terms: more } = vectors.answers.find(({ name }) => name === "a gateway's key");
  const whole = JSON.stringify(answer);
  for (const [number, right] of [["72", true], ["72.0", true], ["1e999", false], ["-72", false], ["7.2", false]]) {
    const given = JSON.parse(whole.replace('"number":72', `"number":${number}`));
    const terms = termsOf({ ...vectors.terms, ...more });
    const got = check(given, terms, () => true, seen, trustOf(), vectors.now, []);
    assert.equal(await got.then(() => true, () => false), right, number);
  }
});

test("keys that are none are refused", () => {
  const [good] = vectors.witnesses;
  for (const bad of [[""], ["x"], [vectors.log], [good, good]]) assert.throws(() => trustOf(bad), ConfigError);
  for (const quorum of [0, 2, 1.5]) assert.throws(() => trustOf([good], quorum), ConfigError);
  assert.equal(trustOf(vectors.witnesses).quorum, 2);
});

test("a device uses what is proven, and nothing else", async () => {
  const case_ = (name) => vectors.answers.find((one) => one.name === name);
  const hub = await new FakeHub().start();
  const store = new MemoryStore(true);
  const said = [];
  const device = new Device(hub.url, ENROLMENT, { store, log: (line) => said.push(line) });
  const rested = () => store.change((all) => void (all.backoff = null));
  const synced = async () => {
    await rested();
    const again = new Device(hub.url, ENROLMENT, { store, log: (line) => said.push(line) });
    const told = await again.sync();
    // A page without ε for a message: its lists are the kept model's own, and not drawn.
    const page = new Device(hub.url, ENROLMENT, { store, log: () => {}, mostEpsilon: 0 });
    await page.ready;
    return [told, page];
  };
  hub.terms = vectors.terms;
  try {
    hub.answers = case_("first contact").answer;
    const { state, why } = await device.sync(); // the hub's model is not the log's
    assert.equal(state, "UNPROVEN", why);
    assert.deepEqual(device.rank([[0, 1], [1, 0]]).order, [0, 1]);
    assert.ok(said[0].includes("not used"));
    hub.round = 69;
    let [told, page] = await synced();
    assert.equal(told.state, "OK", told.why);
    assert.deepEqual(page.rank([[0, 1], [1, 0]]).order, [1, 0]);
    hub.round = 70;
    hub.answers = case_("another head of the same size").answer;
    [told, page] = await synced();
    assert.equal(told.state, "UNPROVEN");
    assert.equal(Object.keys(await store.change(({ conflicts }) => conflicts)).length, 1);
    for (const junk of [null, 7, [], {}, { ...hub.answers, entries: "x" }, { ...hub.answers, checkpoint: "\n\n" }]) {
      hub.answers = junk;
      [told, page] = await synced();
      assert.equal(told.state, "UNPROVEN");
      assert.deepEqual(page.rank([[0, 1], [1, 0]]).order, [1, 0], "by the model that it had");
    }
    const asked = hub.asked("GET /v1/log");
    assert.ok(asked.every(({ headers }) => headers.authorization === undefined));
    assert.deepEqual([asked[0].path, asked.at(-1).path], ["/v1/log/0", "/v1/log"]);
  } finally {
    await hub.stop();
  }
});

// Draws of a device: the published vectors, and a device that keeps to them.

import assert from "node:assert/strict";
import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ownDraw, partIn, word } from "../build/draws.js";
import { Device, MemoryStore } from "../build/index.js";
import { Refusal } from "../build/connection.js";
import { reportOf } from "../build/messages.js";
import { epochChallenge, sha256 } from "../build/oblivious/tokens.js";
import { termsOf } from "../build/terms.js";
import { Purse } from "../build/tokens.js";
import { ENROLMENT, FakeHub, modelBytes, TERMS } from "./fake_hub.mjs";

const file = new URL("../../../docs/reference/wire-vectors.json", import.meta.url);
const { draws: vectors, epochs } = JSON.parse(readFileSync(file, "utf8"));
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));

test("words are those of the vectors, and so is who is drawn", async () => {
  assert.ok(vectors.length > 2);
  for (const { token, purpose, model, word: expected, share_drawn: shares } of vectors) {
    const draw = await ownDraw(token, bytes(model));
    assert.equal(await word(draw, purpose), expected);
    if (purpose !== "fedrank/due") continue;
    for (const [share, drawn] of shares.filter(([share]) => share > 0)) {
      const terms = { ...TERMS, due: share, drawn_seeds: false, checks: 0 };
      assert.deepEqual(await partIn(terms, draw, bytes(model), true, assert.fail), [drawn ? null : -1, null], `${share}`);
    }
  }
});

test("a check is that of the vectors, and names the model that it compares with", async () => {
  const { checks } = JSON.parse(readFileSync(file, "utf8"));
  assert.ok(checks.length > 1);
  for (const { terms: given, best, sums, noise, report } of checks) {
    const terms = termsOf(given);
    const model = bytes(best).fill(0x42, 5); // other weights
    const draw = await ownDraw("a-device-token", model);
    const [pair, kept] = await partIn({ ...terms, checks: 1 }, draw, model, true, async () => [bytes(best)]);
    assert.equal(Buffer.from(kept).toString("hex"), best);
    assert.equal(Buffer.from(reportOf(terms, pair, sums, noise, true)).toString("hex"), report);
    // The newest is the best; there is none; the device is new; the hub says something else.
    const part = (known, answer) => partIn({ ...terms, checks: 1 }, draw, bytes(best), known, async () => answer);
    assert.deepEqual(await part(true, [bytes(best)]), [null, null]);
    assert.deepEqual(await part(true, { reason: "not-found" }), [null, null]);
    assert.deepEqual(await part(false, null), [null, null]);
    // In the first round of a hub too, a new device could have chosen its token.
    const first = bytes(best).fill(0, 1, 5);
    assert.deepEqual(await partIn({ ...terms, due: 0.5 }, await ownDraw("a-device-token", first), first, false, assert.fail), [-1, null]);
    assert.deepEqual(await part(true, { reason: "unavailable" }), { reason: "unavailable" });
  }
});

test("terms say with their version what a device has to do", () => {
  assert.equal(termsOf({ ...TERMS, wire: 2, due: 0.5 }).due, 0.5);
  assert.ok(termsOf({ ...TERMS, wire: 2, drawn_seeds: true }).drawn_seeds);
  assert.equal(termsOf({ ...TERMS, checks: 0.5 }).checks, 0.5);
  assert.equal(termsOf({ ...TERMS, wire: 3, tokens: 3, batch: 2, gateway: "ab".repeat(32) }).batch, 2);
  assert.equal(termsOf({ ...TERMS, wire: 3, tokens: 1 }).tokens, 1);
  assert.equal(termsOf({ ...TERMS, wire: 3, tokens: 1, least_sales: 9, due: 0.5, drawn_seeds: true, checks: 0.5 }).least_sales, 9);
  for (const bad of [{ due: 0.5 }, { wire: 2 }, { wire: 2, due: 0 }, { wire: 2, due: 1.5 }, { wire: 2, tokens: 1 },
    { tokens: 1 }, { wire: 3, tokens: 0.5 }, { wire: 3, due: 0.5 }, { wire: 3, tokens: 1, batch: 2 }, { least_sales: 2 },
    { wire: 3, tokens: 1, least_sales: 0 },
    { wire: 3, tokens: 1, gateway: "ab".repeat(32) }, { batch: 2, gateway: "ab".repeat(32) }, { checks: 2 }]) {
    assert.throws(() => termsOf({ ...TERMS, ...bad }), JSON.stringify(bad));
  }
});

/** A purse whose hub said what an epoch of the vectors draws by, and which holds that epoch's token. */
async function pursed({ hub, epoch, tokens, secret, reports, content }, said = {}, sales = 9) {
  const store = new MemoryStore(true);
  const token = Uint8Array.from([...bytes(content), ...new Uint8Array(256)]);
  await store.change((kept) => {
    kept.purse = { tokens: { [`${hub} ${epoch}`]: { offer: token, asked: null, token, beacon: null, round: null } } };
  });
  const b64 = (hex) => Buffer.from(hex, "hex").toString("base64url");
  const first = (epoch - 1) * tokens + 1;
  const beacon = { secret: b64(secret), reports: b64(reports), sales, ...said };
  const body = new TextEncoder().encode(JSON.stringify({ round: first, state: "done", etag: "x", beacon }));
  const client = { ask: async () => ({ status: 200, body }) };
  const memory = { change: (step) => store.change(step), silence: () => "", complain() {} };
  const purse = new Purse(memory, client, { hub, tokens, least_sales: 5 }, Refusal, assert.fail);
  assert.equal(await purse.buy("device"), null);
  return [purse, store, first];
}

test("a token draws what the vectors say, and is shown in that round alone", async () => {
  assert.ok(epochs.length > 1);
  const hex = (data) => Buffer.from(data).toString("hex");
  for (const one of epochs) {
    const [purse, store, first] = await pursed(one);
    assert.equal(hex(await epochChallenge(one.hub, one.epoch, await sha256(bytes(one.secret)))), one.challenge);
    const drawing = await purse.drawing(first);
    assert.equal(drawing.round, first + one.turn);
    assert.deepEqual([hex(drawing.key), hex(drawing.beacon), drawing.committed], [one.key, one.beacon, true]);
    assert.equal(hex(drawing.entry), `05${one.epoch.toString(16).padStart(8, "0")}${one.beacon}00000009`);
    for (const purpose in one.words) assert.equal(await word(drawing, `fedrank/${purpose}`), one.words[purpose]);
    const shown = () => store.change((kept) => [0, 1, 2].map((n) => purse.shown(kept, drawing.round + n - 1) !== null));
    assert.deepEqual(await shown(), [false, false, false]);
    assert.equal(await purse.take(drawing), "");
    assert.deepEqual(await shown(), [false, true, false]);
    assert.equal(await purse.take(drawing), "");
    assert.match(await purse.take({ ...drawing, beacon: new Uint8Array(32) }), /changed/);
    assert.equal(await purse.drawing(first + one.tokens), undefined, "of the next epoch nothing is known yet");
    const [other] = await pursed(one, { secret: Buffer.alloc(32, 1).toString("base64url") });
    assert.match(await other.take(await other.drawing(first)), /another secret/);
    // After a change of the issuer's key it may be of a key that was changed: the model is used, and it is shown with nothing.
    const [changed, there] = await pursed(one, { secret: Buffer.alloc(32, 1).toString("base64url") });
    await there.change((kept) => (kept.heads = { [one.hub]: { size: 1, root: "", note: "", keys: { 3: "0703" } } }));
    assert.equal(await changed.take(await changed.drawing(first)), "");
    assert.equal(await changed.drawing(first), null);
    const [few] = await pursed(one, {}, 4);
    assert.equal(await few.drawing(first), null, "an epoch with too few sales is void");
  }
});

test("after changes of the issuer's key that a device did not see it buys of the key that the log names", async () => {
  const golden = new URL("../../../tests/deploy/golden/oblivious-vectors.json", import.meta.url);
  const key = bytes(JSON.parse(readFileSync(golden, "utf8")).rfc9578[0].pkS);
  const [sold, old] = [1, 2].map((byte) => Uint8Array.from([...key, ...new Uint8Array(32).fill(byte)]));
  const id = createHash("sha256").update(key).digest("hex");
  for (const [newest, offers] of [[id, sold], ["22".repeat(32), old]]) {
    const store = new MemoryStore(true);
    await store.change((kept) => {
      kept.purse = { tokens: { "h 1": { offer: old, asked: null, token: key, beacon: null, round: null } } };
      const keys = { 3: `0703${"00".repeat(8)}${"11".repeat(32)}${newest}` };
      kept.heads = { h: { size: 1, root: "", note: "", keys } };
    });
    const offer = Buffer.from(sold).toString("base64url");
    const body = new TextEncoder().encode(JSON.stringify({ round: 0, state: "open", etag: "x", epoch: 1, offer }));
    const asked = [];
    const ask = async (method, path) => {
      asked.push(path);
      return method === "GET" ? { status: 200, body } : { status: 409, reason: "wrong-epoch" };
    };
    const memory = { change: (step) => store.change(step), silence: () => "", complain() {} };
    const purse = new Purse(memory, { ask }, { hub: "h", tokens: 1, least_sales: 1 }, Refusal, async () => "");
    assert.equal(await purse.buy("device"), null, "the synchronisation goes on");
    assert.deepEqual(asked, ["/v1/tokens", ...(offers === sold ? ["/v1/token/1"] : [])]);
    assert.deepEqual(await store.change((kept) => kept.purse.tokens["h 1"].offer), offers);
  }
});

/** The words of a round, by another implementation. */
function expected(token, hub, purpose) {
  const beacon = createHash("sha256").update(modelBytes(hub.round, hub.weights)).digest();
  const key = createHash("sha256").update(token).digest();
  return createHmac("sha256", key).update(purpose).update(beacon).digest().readUInt32LE(0);
}

test("a device reports in the rounds that it is due in, with the seed that is drawn", async () => {
  const hub = await new FakeHub().start();
  hub.terms = { ...TERMS, wire: 2, due: 0.5, drawn_seeds: true };
  const store = new MemoryStore(true);
  try {
    let due = 0;
    for (let round = 0; round < 16; round++) {
      hub.round = 30 + round;
      const device = new Device(hub.url, ENROLMENT, { store, lifetimeEpsilon: 100 });
      assert.equal((await device.sync()).state, "OK");
      const { token } = await store.change((kept) => kept);
      const drawn = round > 0 && expected(token, hub, "fedrank/due") < 2 ** 31; // it is new in the first
      assert.equal(device.wantsClicks, drawn, `round ${round}`);
      for (let i = 0; i < 2; i++) {
        const ranking = device.rank([[0, 1], [1, 0], [1, 1]]);
        assert.equal(ranking.learning, drawn);
        device.logClick(ranking, 0);
        device.finish(ranking);
      }
      assert.equal((await device.sync()).sent, Number(drawn));
      due += drawn;
      if (drawn) assert.equal(hub.asked("POST /v1/report").at(-1).body.readUInt32LE(1), expected(token, hub, "fedrank/seed"));
    }
    assert.ok(due > 1 && due < 15);
    assert.equal(hub.reports.size, due);
  } finally {
    await hub.stop();
  }
});

test("a report that a hub calls not due is dropped, and the model is fetched", async () => {
  const hub = await new FakeHub().start();
  hub.faults.push(["POST /v1/report", 409, {}, JSON.stringify({ error: "not-due" })]);
  const device = new Device(hub.url, ENROLMENT, { store: new MemoryStore(true) });
  try {
    await device.sync();
    while (device.wantsClicks) device.finish(device.rank([[0, 1], [1, 0]]));
    const { state, sent } = await device.sync();
    assert.deepEqual([state, sent], ["STALE", 0]);
    assert.deepEqual((await device.ledger()).map(({ outcome }) => outcome), ["was not due, not counted"]);
  } finally {
    await hub.stop();
  }
});

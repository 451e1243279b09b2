// A device against a hub that misbehaves: what it sends, what it keeps, and what it never does.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { ConfigError, Device, MemoryStore } from "../build/index.js";
import { nothing } from "../build/kept.js";
import { termsOf } from "../build/terms.js";
import { ANYTHING, ENROLMENT, FakeHub, RESPONSE, TERMS } from "./fake_hub.mjs";

const FEATURES = [
  [0, 0],
  [1, 0],
  [0, 1],
  [3, 1],
];

let hub, store, said;
beforeEach(async () => {
  hub = await new FakeHub().start();
  store = new MemoryStore(true); // as lasting as the test: pages that are loaded again share it
  said = [];
});
afterEach(() => hub.stop());

const log = (line) => said.push(line);
/** An app that allows more than the defaults. */
const ALLOWED = { mostEpsilon: 4, mostSearchEpsilon: 4, lifetimeEpsilon: 8 };
const page = (options = {}) => new Device(hub.url, ENROLMENT, { store, log, ...ALLOWED, ...options });
const kept = () => store.change((all) => all);
/** As if every pause were over. */
const rested = () => store.change((all) => void (all.backoff = null));

function search(device, ...clicks) {
  const ranking = device.rank(FEATURES);
  for (const position of clicks) device.logClick(ranking, position);
  return device.finish(ranking);
}

function searches(device) {
  let count = 0;
  while (device.wantsClicks) {
    assert.ok(search(device, 0));
    assert.ok(++count < 100);
  }
  return count;
}

/** A device that has enrolled, has the model, and has its message waiting. */
async function full(options) {
  const device = page(options);
  assert.equal((await device.sync()).state, "OK");
  searches(device);
  return device;
}

test("a device enrols, ranks, learns and reports once a round", async () => {
  const device = page();
  assert.deepEqual(device.rank(FEATURES).order, [0, 1, 2, 3]);
  assert.equal(device.wantsClicks, false);
  const { state, nextIn } = await device.sync();
  assert.ok(state === "OK" && nextIn >= 30 && nextIn <= 90);
  assert.equal(searches(device), 2);
  assert.equal(search(device, 0), false, "the round has its message");
  assert.deepEqual(device.rank(FEATURES).order, [3, 1, 0, 2], "by the model itself");
  assert.equal((await device.sync()).sent, 1);
  assert.equal((await device.sync()).sent, 0);
  const [{ path, body, headers }] = hub.asked("POST /v1/report");
  assert.equal(path, "/v1/report/7");
  assert.deepEqual([body.length, body[0], headers["content-length"]], [6, 0x25, "6"]);
  const [row] = await device.ledger();
  assert.deepEqual([row.round, row.bytes, row.epsilon, row.total, row.outcome], [7, 6, 1, 1, "counted"]);
  hub.round = 9;
  await device.sync();
  searches(device);
  assert.equal((await device.sync()).sent, 1);
  assert.equal(hub.reports.size, 2);
  assert.equal((await device.ledger()).at(-1).total, 2);
  assert.deepEqual(said, []);
});

test("randomised response takes turns, and its trial outlives the page", async () => {
  hub.terms = RESPONSE;
  const first = page(ANYTHING);
  await first.sync();
  assert.ok(search(first, 0) && search(first));
  await first.close();
  assert.equal(first.rank(FEATURES).learning, false);
  const { trial } = await kept();
  assert.deepEqual(trial.done, [1, 1]);
  const second = page(ANYTHING);
  await second.ready;
  assert.equal(searches(second), 2);
  assert.equal((await second.sync()).sent, 1);
  const { body } = hub.asked("POST /v1/report")[0];
  assert.deepEqual([body.length, body[0], body.readUInt32LE(1)], [9, 0x22, trial.seed]);
});

test("a page that is loaded anew for each search finishes its message, and no other", async () => {
  hub.terms = { ...TERMS, interactions: 30 };
  await page().sync();
  for (let searched = 0; searched < 30; searched++) {
    const now = page();
    await now.ready;
    const before = await kept();
    assert.deepEqual(before.trial?.done ?? [0, 0], [searched, searched]);
    assert.ok(now.wantsClicks && search(now, searched % 3));
    await now.close();
  }
  const { trial, messages } = await kept();
  assert.deepEqual([trial, messages.length], [null, 1], "the sums end with their message");
  assert.equal((await page().sync()).sent, 1);
  assert.equal(page().wantsClicks, false);
});

test("of a search whose writing fails nothing is counted, and those before it go on", async () => {
  hub.terms = { ...TERMS, interactions: 3 };
  const device = page();
  await device.sync();
  search(device, 0);
  await device.sync();
  const change = store.change;
  store.change = () => Promise.reject(new DOMException("", "QuotaExceededError"));
  search(device, 0);
  store.change = change;
  await device.sync();
  assert.deepEqual((await kept()).trial.done, [1, 1]);
  const next = page();
  await next.ready;
  assert.equal(searches(next), 2);
});

test("a page that opted out or left keeps no sums", async () => {
  for (const end of ["optOut", "leave"]) {
    const device = page();
    await device.sync();
    search(device, 0);
    await device.sync();
    assert.ok((await kept()).trial);
    await device[end]();
    assert.equal((await kept()).trial, null);
    await rested();
    await device.optIn();
  }
});

test("a device of a hub that sold tokens as before goes on at the new one once its app agrees", async () => {
  const former = { ...TERMS, wire: 2, tokens: 1, hub: "f".repeat(32) };
  const message = { number: 1, hub: former.hub, round: 3, body: new Uint8Array(6), epsilon: 1, unit: 2, sent: 1, unanswered: 0 };
  await store.change((all) => {
    const messages = [{ ...message, outcome: "counted" }];
    Object.assign(all, { url: hub.url, token: "former", terms: former, agreed: former, messages });
  });
  const device = page();
  assert.equal((await device.sync()).state, "TERMS_CHANGED");
  assert.deepEqual((await device.offered()).changed.wire, [2, 1]);
  await rested();
  assert.ok(await device.agree());
  assert.equal((await device.sync()).state, "OK");
  assert.equal((await device.privacy()).epsilonTotal, 1);
  searches(device);
  assert.equal((await device.sync()).sent, 1);
  assert.equal((await device.privacy()).epsilonTotal, 2);
});

const KEY = "17".repeat(32);

test("a fresh page that leaves encrypts its token to no other gateway than the hub's", async () => {
  hub.terms = { ...TERMS, tokens: 1, batch: 2, gateway: KEY };
  let named = KEY;
  hub.relay = () => JSON.stringify({ keys: `0029010020${named}000400010001`, batch: 2 });
  const device = page({ relay: hub.url });
  await store.change((all) => {
    Object.assign(all, { url: hub.url, token: "device-token-0", terms: hub.terms, agreed: hub.terms });
  });
  hub.faults.push(["POST /others", 503]);
  assert.equal(await device.leave(), false);
  assert.equal(hub.asked("POST /others").length, 1);
  await rested();
  named = "23".repeat(32);
  const fresh = page({ relay: hub.url });
  assert.equal((await fresh.sync()).state, "RETRY");
  assert.equal(hub.asked("POST /others").length, 1, "a thief's key gets nothing");
  assert.equal((await kept()).leaving, "device-token-0");
});

test("two pages of one store make one message for a round", async () => {
  const a = page();
  await a.sync();
  const b = page();
  await b.ready;
  searches(a);
  searches(b);
  assert.equal((await a.sync()).sent, 1);
  await b.sync();
  assert.equal((await kept()).messages.length, 1);
  assert.equal(hub.reports.size, 1);
});

test("what may have been counted is sent again, the same bytes, even after a newer model", async () => {
  const device = await full();
  hub.faults.push(["POST /v1/report", 0]);
  const { state, nextIn } = await device.sync();
  assert.ok(state === "OFFLINE" && nextIn <= 2);
  assert.match((await device.ledger())[0].outcome, /no answer yet/);
  assert.equal((await device.sync()).state, "OFFLINE", "the pause is not over");
  assert.equal(hub.asked("POST /v1/report").length, 1);
  hub.round = 8;
  await rested();
  const again = page();
  assert.equal((await again.sync()).sent, 1);
  const [one, two] = hub.asked("POST /v1/report");
  assert.deepEqual([two.path, two.body], [one.path, one.body]);
  assert.equal((await again.ledger())[0].outcome, "counted");
});

const refused = (error) => JSON.stringify({ error, detail: "" });
const ANSWERS = [
  [409, "stale-round", "STALE", "too late, not counted"],
  [409, "early-round", "STALE", "too late, not counted"],
  [409, "conflict", "RETRY", "refused, not counted"],
  [410, "done", "DONE", "training was over, not counted"],
  [400, "malformed", "RETRY", "refused, not counted"],
  [413, "too-large", "RETRY", "refused, not counted"],
  [422, "out-of-range", "RETRY", "refused, not counted"],
];
for (const [status, reason, state, outcome] of ANSWERS) {
  test(`a report that is answered ${status} ${reason} is dropped`, async () => {
    const device = await full();
    hub.faults.push(["POST /v1/report", status, {}, refused(reason)]);
    assert.equal((await device.sync()).state, state);
    assert.equal((await device.ledger())[0].outcome, outcome);
    await rested();
    const again = page();
    await again.sync();
    assert.equal(hub.asked("POST /v1/report").length, 1);
    assert.equal(again.wantsClicks, false, "no second report for the round");
  });
}

const LATER = [
  [429, "too-many"],
  [503, "unavailable"],
  [503, "between-rounds"],
  [500, ""],
  [409, ""],
  [408, ""],
];
for (const [status, reason] of LATER) {
  test(`a report that is answered ${status} ${reason} is sent again later`, async () => {
    const device = await full();
    hub.faults.push(["POST /v1/report", status, { "Retry-After": "100" }, reason ? refused(reason) : "<p>"]);
    const { state, nextIn } = await device.sync();
    assert.ok(state === "RETRY" && nextIn > 99 && nextIn <= 102);
    const counts = (await kept()).messages[0].unanswered;
    assert.equal(counts, reason ? 0 : 1, "whether it may have been counted");
    const again = page();
    const waiting = await again.sync();
    assert.ok(waiting.state === "RETRY" && waiting.nextIn > 90, "a page that is loaded again waits too");
    await rested();
    assert.equal((await page().sync()).sent, 1);
  });
}

test("the long page of something in between counts by its status", async () => {
  const device = await full();
  hub.faults.push(["POST /v1/report", 502, { "Retry-After": "30" }, "<p>".repeat(5000)]);
  const { state, nextIn } = await device.sync();
  assert.ok(state === "RETRY" && nextIn > 29);
  await rested();
  hub.faults.push(["GET /v1/model", 401, {}, "<p>".repeat(5000)]);
  await page().sync();
  assert.equal((await kept()).token, null);
});

test("a hub that forgot the token gets no report twice", async () => {
  const device = await full();
  hub.faults.push(["POST /v1/report", 0]);
  await device.sync();
  hub.tokens = [];
  await rested();
  const again = page();
  assert.equal((await again.sync()).state, "RETRY");
  await rested();
  const last = page();
  assert.equal((await last.sync()).state, "OK");
  assert.equal(hub.asked("POST /v1/enrol").length, 2);
  assert.equal(hub.asked("POST /v1/report").length, 1);
  assert.match((await last.ledger())[0].outcome, /may have been counted/);
  assert.equal(last.wantsClicks, false);
  const asked = hub.asked("GET /v1/model").filter(({ token }) => token === hub.tokens[0]);
  assert.deepEqual(asked.map(({ headers }) => headers["if-none-match"]), [undefined], "no tag of the old token");
});

test("the tag of a model is sent back as it came", async () => {
  const device = page();
  await device.sync();
  await device.sync();
  await page().sync();
  const tags = hub.asked("GET /v1/model").map(({ headers }) => headers["if-none-match"]);
  assert.deepEqual(tags, [undefined, '"opaque 7 1,-1"', '"opaque 7 1,-1"']);
});

test("terms that give more than the app allows make the device silent", async () => {
  const device = page({ mostEpsilon: 0.99 });
  const { state, why } = await device.sync();
  assert.equal(state, "SILENT");
  assert.match(why, /ε = 1.000; this app allows 0.99 \(mostEpsilon\)/);
  assert.deepEqual(device.rank(FEATURES).order, [3, 1, 0, 2], "by the model itself");
  assert.equal(device.wantsClicks, false);
  assert.equal(hub.asked("POST /v1/report").length, 0);
});

test("without a word of the app a device agrees to what a hub asks for without a word of its operator", async () => {
  const plain = () => new Device(hub.url, ENROLMENT, { store, log });
  hub.terms = RESPONSE;
  assert.match((await plain().sync()).why, /a message ε = .*; this app allows 1 \(mostEpsilon\)/);
  assert.match((await page({ mostEpsilon: 100, mostSearchEpsilon: 3 }).sync()).why, /a search ε = .*; this app allows 3 \(mostSearchEpsilon\)/);
  await store.change((all) => Object.assign(all, nothing()));
  hub.terms = { ...TERMS, epsilon: 0.5 };
  for (let round = 0; round < 3; round++) {
    hub.round = 30 + round;
    const device = plain();
    await device.sync();
    assert.equal(searches(device), round < 2 ? 2 : 0);
    await device.sync();
  }
  assert.match((await plain().privacy()).silent, /ε = 1.000 was spent; another would exceed lifetimeEpsilon = 1/);
  assert.equal(hub.reports.size, 2);
});

test("the lifetime's ε is kept to across pages, and after the ledger was erased", async () => {
  for (let round = 0; round < 4; round++) {
    hub.round = 20 + round;
    const device = page({ lifetimeEpsilon: 2.5 });
    await device.sync();
    assert.equal(searches(device), round < 2 ? 2 : 0);
    const { state } = await device.sync();
    assert.equal(state, round < 1 ? "OK" : "SILENT");
    if (round === 2) assert.ok(await device.leave());
    if (round === 2) assert.ok(await device.optIn());
  }
  const last = page({ lifetimeEpsilon: 2.5 });
  const told = await last.privacy();
  assert.deepEqual([told.epsilonTotal, told.messages], [2, 0]);
  assert.match(told.silent, /would exceed lifetimeEpsilon = 2.5/);
  assert.equal(hub.reports.size, 2);
});

test("the terms' number of messages is kept to, and needs a store that lasts", async () => {
  hub.terms = { ...TERMS, participations: 1 };
  const device = await full();
  await device.sync();
  hub.round++;
  assert.match((await device.sync()).why, /would exceed the 1 of the hub's terms/);
  assert.equal(device.wantsClicks, false);
  const forgetful = page({ store: new MemoryStore() });
  assert.match((await forgetful.sync()).why, /the store does not last/);
});

test("a limit that became smaller while a message waits holds it back", async () => {
  await (await full()).close();
  assert.equal((await page({ lifetimeEpsilon: 0.5 }).sync()).state, "SILENT");
  assert.equal(hub.reports.size, 0);
});

test("after opting out nothing is sent but the wish to be forgotten", async () => {
  const device = await full();
  const before = hub.seen.length;
  assert.ok(await device.optOut());
  for (const one of [device, page()]) {
    assert.equal((await one.sync()).state, "SILENT");
    assert.equal(one.wantsClicks, false);
    assert.deepEqual(one.rank(FEATURES).order, [3, 1, 0, 2]);
  }
  assert.equal(hub.seen.length, before);
  assert.equal((await kept()).messages.length, 0, "what had not left is discarded");
  assert.ok(await device.leave());
  assert.deepEqual(hub.seen.slice(before).map(({ method }) => method), ["DELETE"]);
  assert.deepEqual(hub.tokens, []);
});

test("opting out stops a message that is about to leave", async () => {
  const device = await full();
  const syncing = device.sync();
  const out = device.optOut();
  await syncing;
  assert.ok(await out);
  assert.equal(hub.reports.size, 0);
});

test("leaving is tried again until the hub has forgotten the token", async () => {
  const device = page();
  await device.sync();
  hub.faults.push(["DELETE", 503, {}, refused("unavailable")]);
  assert.equal(await device.leave(), false);
  await rested();
  assert.equal((await page().sync()).state, "SILENT");
  assert.deepEqual(hub.tokens, []);
});

test("other terms need the app's agreement, and the token goes back", async () => {
  const device = await full();
  hub.terms = { ...TERMS, hub: "f".repeat(32), epsilon: 2 };
  hub.tokens = [];
  await device.sync();
  await rested();
  const other = page();
  assert.equal((await other.sync()).state, "TERMS_CHANGED");
  assert.equal(other.wantsClicks, false);
  assert.deepEqual((await other.offered()).changed, { epsilon: [1, 2] });
  await rested();
  await page().sync();
  assert.equal(hub.asked("DELETE")[0].token, "device-token-1");
  assert.equal(hub.asked("POST /v1/report").length, 0);
  const last = page();
  assert.ok(await last.agree());
  assert.equal((await last.sync()).state, "OK");
  assert.equal(searches(last), 2);
  assert.equal((await last.sync()).sent, 1);
});

test("the same terms of another hub need no agreement; another value under the same name is refused", async () => {
  await page().sync();
  hub.terms = { ...TERMS, hub: "f".repeat(32) };
  hub.tokens = [];
  await page().sync();
  await rested();
  assert.equal((await page().sync()).state, "OK");
  hub.terms = { ...hub.terms, sigma: 2 };
  hub.tokens = [];
  await page().sync();
  await rested();
  const last = page();
  assert.match((await last.sync()).why, /under the same name/);
  assert.equal(await last.agree(), false);
});

test("a store of another hub's address keeps its ledger and nothing of that hub", async () => {
  const device = await full();
  await device.sync();
  const other = new Device("http://127.0.0.1:9", ENROLMENT, { store });
  assert.equal((await other.ledger()).length, 1);
  const all = await kept();
  assert.deepEqual([all.token, all.terms, all.model], [null, null, null]);
  assert.equal((await other.sync()).state, "OFFLINE");
});

const MODELS = [
  ["too short", 200, {}, Buffer.from([0x21, 0, 0, 0, 0])],
  ["too long", 200, {}, Buffer.alloc(100_000, 0x21)],
  ["of another kind", 200, {}, Buffer.concat([Buffer.from([0x22]), Buffer.alloc(12)])],
  ["not finite", 200, {}, Buffer.concat([Buffer.from([0x21]), Buffer.alloc(8), Buffer.from([0, 0, 0xc0, 0x7f])])],
  ["not asked for", 304, {}, ""],
  ["elsewhere", 302, { Location: "/v1/elsewhere" }, ""],
];
for (const [name, ...answer] of MODELS) {
  test(`a model that is ${name} is refused`, async () => {
    hub.faults.push(["GET /v1/model", ...answer]);
    const device = page();
    assert.match((await device.sync()).state, /RETRY|OFFLINE/);
    assert.equal(device.wantsClicks, false);
    assert.equal(hub.asked("GET /v1/elsewhere").length, 0);
  });
}

test("terms in which something is missing, has another type or is out of range are refused", () => {
  const optional = ["inside", "outside", "clip", "interleaved", "participations"];
  for (const name of Object.keys(TERMS)) {
    const { [name]: _, ...without } = RESPONSE;
    if (optional.includes(name)) assert.deepEqual(termsOf(without), termsOf(RESPONSE));
    else assert.throws(() => termsOf(without), /WireError/, name);
    assert.throws(() => termsOf({ ...TERMS, [name]: [] }), /WireError/, name);
  }
  const wrong = [
    { protocol: "fedavg" }, { wire: 2 }, { hub: "0".repeat(31) }, { hub: "G".repeat(32) }, { n_features: 0 },
    { n_features: 1.5 }, { n_features: 1_000_001 }, { hidden: 1 }, { ranker: "mlp" }, { ranker: "tree" },
    { reward: "MAP" },
    { reward_values: 1 }, { reward_values: 70_000 }, { depth: 0 }, { depth: 11 }, { interactions: 0 },
    { interactions: 10_001 }, { interactions: 3, interleaved: false }, { sigma: 0 }, { sigma: -1 }, { sigma: 1e31 },
    { mechanism: "gaussian" }, { p: 0.5 }, { epsilon: null }, { epsilon: 0.0001 }, { epsilon: 17 }, { inside: 0 },
    { inside: 3 }, { outside: 5 }, { inside: 256 }, { clip: 0 }, { clip: 1.1 }, { participations: 0 },
    { interactions: 9999, reward: "DCG" }, { mechanism: "laplace" }, { ...RESPONSE, p: 0.1 }, { ...RESPONSE, p: 1.1 },
    { ...RESPONSE, inside: 1 }, { ...RESPONSE, epsilon: 1 }, { ...RESPONSE, interleaved: true },
    { ...RESPONSE, clip: 0.5 },
    { ...RESPONSE, mechanism: "laplace", p: 1, epsilon: 1e-7 },
  ];
  termsOf({ ...TERMS, more: 1 });
  termsOf({ ...RESPONSE, mechanism: "laplace", p: 1, epsilon: 1 });
  for (const change of wrong) {
    assert.throws(() => termsOf({ ...TERMS, ...change }), /WireError/, JSON.stringify(change));
  }
  for (const nothing of [null, undefined, 3, "x", []]) assert.throws(() => termsOf(nothing), /WireError/);
});

test("a page that gives nonsense gets the order of the data, and no error", async () => {
  const device = page();
  await device.sync();
  for (const features of [null, 3, "x", [[1]], [[1, "2"]], [[1, NaN]], [[1, 1e39]], [null], [[1, 2], [3]]]) {
    const { order, learning } = device.rank(features);
    assert.deepEqual([order.length, learning], [Array.isArray(features) ? features.length : 0, false]);
  }
  assert.deepEqual(device.rank([]).order, []);
  assert.equal(device.logClick(null, 0), false);
  const ranking = device.rank([Float32Array.of(1, 2), Float64Array.of(3, 4)]);
  assert.ok(ranking.learning);
  for (const position of [-1, 2, 0.5, NaN, "0"]) assert.equal(device.logClick(ranking, position), false);
  assert.ok(device.logClick(ranking, 1));
  device.rank(FEATURES);
  assert.equal(device.logClick(ranking, 1), false, "an older list");
  assert.ok(!said.join().includes("1e39"));
});

test("settings that can never work are refused", () => {
  for (const wrong of ["", "hub", "ftp://x", "http://example.org", "https://u:p@x", "https://x/?q", "https://x/#f"]) {
    assert.throws(() => new Device(wrong, ENROLMENT, { store }), ConfigError, wrong);
  }
  for (const token of ["short", "with a space", "ü".repeat(9), 12345678]) {
    assert.throws(() => new Device(hub.url, token, { store }), ConfigError);
  }
  for (const name of ["mostEpsilon", "lifetimeEpsilon", "timeout", "patience"]) {
    for (const value of [-1, NaN, "1", null]) assert.throws(() => page({ [name]: value }), ConfigError);
  }
  new Device("http://example.org", ENROLMENT, { store, allowHttp: true });
});

test("a store that fails stops no page, and sends nothing", async () => {
  const broken = { lasting: true, change: () => Promise.reject(new Error("disk")), close() {} };
  const device = page({ store: broken });
  assert.equal((await device.sync()).state, "SILENT");
  assert.deepEqual(device.rank(FEATURES).order, [0, 1, 2, 3]);
  assert.equal(hub.seen.length, 0);
});

test("a message that cannot be put into the ledger does not leave", async () => {
  const device = await full();
  const whole = store.change.bind(store);
  store.change = (step) =>
    whole((all) => {
      const before = all.messages[0]?.sent;
      const result = step(all);
      if (before === null && all.messages[0]?.sent) throw new Error("disk");
      return result;
    });
  assert.equal((await device.sync()).state, "RETRY");
  assert.equal(hub.reports.size, 0);
});

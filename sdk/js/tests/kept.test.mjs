// Steps of the store by themselves, where pages get in each other's way; and edges that no published vector touches.

import assert from "node:assert/strict";
import { test } from "node:test";
import { draft } from "../build/interleave.js";
import { IndexedDbStore } from "../build/indexed_db.js";
import * as k from "../build/kept.js";
import { Memory } from "../build/memory.js";
import { ledger } from "../build/shown.js";
import { discreteLaplace } from "../build/laplace.js";
import { privatisedDifference } from "../build/piecewise.js";
import { Round } from "../build/trial.js";
import { termsOf } from "../build/terms.js";
import { osWords } from "../build/words.js";
import { modelBytes, RESPONSE, TERMS } from "./fake_hub.mjs";

/** What is kept with one message of ε = 1 a number. */
function withMessages(...numbers) {
  const messages = numbers.map((number) => {
    const body = Uint8Array.of(number);
    return { number, hub: "h", round: number, body, epsilon: 1, unit: 1, words: "", sent: null, unanswered: 0, outcome: null };
  });
  return { ...k.nothing(), messages };
}

test("what another page spent meanwhile counts", () => {
  const kept = withMessages(1, 2);
  assert.ok(k.sending(kept, 1, 1.5, 100));
  assert.equal(k.sending(kept, 2, 1.5, 100), false);
  assert.ok(k.sending(kept, 1, 1.5, 200), "what has left already may be sent again");
  assert.equal(kept.messages[0].sent, 100, "the ledger has the first attempt");
  assert.equal(k.sending(kept, 2, 2, 300), true, "up to the limit");
});

test("a page that enrolled second has its token forgotten", () => {
  const kept = k.nothing();
  for (const token of ["first", "second", "first"]) k.adopt(kept, "https://hub.example", token, termsOf(TERMS));
  assert.deepEqual([kept.token, kept.leaving], ["first", "second"]);
});

test("a message does not leave after another page opted out, or had its answer", () => {
  const kept = withMessages(1);
  assert.equal(k.sending({ ...kept, out: true }, 1, Infinity, 100), false);
  assert.ok(k.sending(kept, 1, Infinity, 100));
  k.answered(kept, 1, k.COUNTED);
  assert.equal(k.sending(kept, 1, Infinity, 200), false);
});

test("an answer that says not counted does not undo one that never came", () => {
  const kept = withMessages(1);
  k.sending(kept, 1, Infinity, 100);
  k.sending(kept, 1, Infinity, 200);
  k.answered(kept, 1, k.TOO_LATE);
  assert.equal(ledger(kept)[0].outcome, k.UNKNOWN);
});

test("a page that tries another seed of the same round adds nothing", () => {
  const terms = termsOf(RESPONSE);
  const kept = { ...k.nothing(), terms, model: modelBytes(1, [0, 0]) };
  const trial = (seed) => ({ hub: terms.hub, round: 1, seed, sums: [0, 0], done: [0, 0] });
  const step = { adds: [6, 0], counts: [1, 0] };
  assert.deepEqual(k.add(kept, terms, trial(5), step, osWords).done, [1, 0]);
  assert.deepEqual([k.add(kept, terms, trial(6), step, osWords).seed, kept.trial.done], [5, [1, 0]]);
  k.add(kept, terms, trial(5), step, osWords);
  k.add(kept, terms, trial(5), step, osWords);
  assert.deepEqual(kept.trial.done, [2, 0], "no half has more than its interactions");
});

test("a page with an older model leaves the sums of the newer one alone, whichever moved on", () => {
  const terms = termsOf(RESPONSE);
  const trial = (round) => ({ hub: terms.hub, round, seed: 5, sums: [0, 0], done: [0, 0] });
  const step = { adds: [6, 0], counts: [1, 0] };
  const kept = { ...k.nothing(), terms };
  k.moveOn(kept, modelBytes(1, [0, 0]), null, "t", null, null);
  k.add(kept, terms, trial(1), step, osWords);
  k.moveOn(kept, modelBytes(2, [0, 0]), null, "t", null, null);
  k.add(kept, terms, trial(2), step, osWords);
  const before = JSON.stringify(kept);
  assert.equal(k.add(kept, terms, trial(1), step, osWords), null);
  assert.equal(k.add(kept, terms, { ...trial(2), hub: "0".repeat(32) }, step, osWords), null);
  assert.equal(JSON.stringify(kept), before);
  assert.deepEqual(k.add(kept, terms, trial(2), step, osWords).done, [2, 0]);
});

test("sums are kept for 30 days at most, and not once other terms are offered", async () => {
  const day = 86_400_000;
  const begun = (when) => ({ ...k.nothing(), terms: TERMS, trial: { hub: "h", round: 1, seed: 5, sums: [3, 1], done: [1, 1], since: when } });
  for (const [when, left] of [[Date.now() - 29 * day, true], [Date.now() - 31 * day, false], [undefined, false]]) {
    const kept = { ...begun(when), url: "https://h" };
    const store = { change: async (step) => step(kept), close() {}, persist() {}, alone: (act) => act() };
    await new Memory(store, "https://h", {}, false, osWords, () => {}).open();
    assert.equal(kept.trial !== null, left, String(when));
  }
  const terms = termsOf(TERMS);
  const kept = { ...begun(Date.now()), terms, agreed: terms };
  const other = { ...terms, hub: "1".repeat(32), depth: terms.depth + 1 };
  new Memory({}, "https://h", {}, false, osWords, () => {}).disagreement(kept, other);
  assert.deepEqual([kept.offered, kept.trial], [other, null]);
});

test("of a pair at the last rank the second is left out", () => {
  assert.deepEqual(draft([0, 1, 2, 3], [3, 2, 1, 0], 3, 0b001), { order: [0, 3, 2, 1], team: [1, -1, -1] });
  assert.deepEqual(draft([0, 1, 2, 3], [3, 2, 1, 0], 1, 0b001), { order: [0, 1, 2, 3], team: [1] });
  assert.deepEqual(draft([], [], 3, 0), { order: [], team: [] });
});

test("a difference is rounded up for exactly as many words as it should", () => {
  // d = 0 of L = 1 with v = 1: the remainder is 1 of 2, so that half of the words round up.
  const window = { epsilon: 16, inside: 1, outside: 1 };
  const report = (x, d = 0) => privatisedDifference(window, d, 1, [x, 0, 0]);
  assert.deepEqual([report(0), report(2 ** 31 - 1), report(2 ** 31), report(2 ** 32 - 1)], [1, 1, 0, 0]);
  assert.deepEqual([report(0, -1), report(2 ** 32 - 1, 1), report(0, -9), report(0, 9)], [0, 1, 0, 1]);
});

test("clicks below the depth and on other lists do not count", () => {
  const round = new Round(termsOf(TERMS), { round: 1, weights: Float32Array.of(1, 1) }, null, false);
  const features = Array.from({ length: 6 }, (_, i) => Float32Array.of(i, 0));
  const ranking = round.show(features, true, osWords, 0);
  const clicked = [round.click(ranking, 2, 1), round.click(ranking, 3, 2), round.click({}, 0, 3)];
  assert.deepEqual(clicked, [true, false, false]);
  assert.deepEqual([round.open.pattern, round.open.since], [4, 2]);
  round.click(ranking, 2, 4);
  assert.equal(round.open.pattern, 4, "a second click adds nothing");
});

test("discrete Laplace noise has the distribution it should", () => {
  // P(0) = tanh(1/2t), variance 2α/(1 − α)² with α = e^(−1/t); six standard errors.
  const draws = 20_000;
  const drawn = Array.from({ length: draws }, () => discreteLaplace(1.5, osWords));
  const mean = (numbers) => numbers.reduce((a, b) => a + b, 0) / draws;
  const a = Math.exp(-1 / 1.5);
  const zero = Math.tanh(0.5 / 1.5);
  const variance = (2 * a) / (1 - a) ** 2;
  const fourth = (2 * a * (1 + 10 * a + a * a)) / (1 - a) ** 4;
  assert.ok(Math.abs(mean(drawn.map((x) => +(x === 0))) - zero) < 6 * Math.sqrt((zero * (1 - zero)) / draws));
  assert.ok(Math.abs(mean(drawn)) < 6 * Math.sqrt(variance / draws));
  assert.ok(Math.abs(mean(drawn.map((x) => x * x)) - variance) < 6 * Math.sqrt((fourth - variance ** 2) / draws));
});

test("what another page wrote down before a store was deleted is not taken back by a page that knows less", async () => {
  for (const [erased, out, spent, left] of [[1, true, 0, [1, true]], [0, false, 0.5, [0.5, false]], [1, false, 2, [2, false]]]) {
    let kept = k.nothing();
    const store = { change: async (step) => step(kept), close() {}, persist() {}, alone: (act) => act() };
    const memory = new Memory(store, "https://h", {}, false, osWords, () => {});
    await memory.open();
    memory.spent = spent;
    kept = { ...k.nothing(), erased, out }; // deleted; the store knows this of the life before
    await memory.put({});
    assert.deepEqual([kept.erased, kept.out], left);
  }
});

test("a life that is kept beside the store and is no number counts as all spent", async () => {
  const rows = { result: [] };
  const table = { getAll: () => (queueMicrotask(() => rows.onsuccess()), rows), clear() {}, put() {} };
  const db = { transaction: () => {
    const transaction = { objectStore: () => table, abort() {} };
    setTimeout(() => transaction.oncomplete?.());
    return transaction;
  }, close() {}, objectStoreNames: { contains: () => true } };
  for (const [written, erased] of [["garbage here", Infinity], ["-1 false", Infinity], ["0.5 false", 0.5], ["Infinity true", Infinity]]) {
    globalThis.localStorage = { x: written };
    globalThis.indexedDB = { open: () => { const opening = { result: db }; queueMicrotask(() => opening.onsuccess()); return opening; } };
    const store = new IndexedDbStore("x");
    assert.equal(await store.change((kept) => kept.erased), erased, written);
  }
  delete globalThis.localStorage;
  delete globalThis.indexedDB;
});

// A store that fails, hangs or loses its record in mid-life, and a clock that is wrong or jumps.

import assert from "node:assert/strict";
import { afterEach, beforeEach, test } from "node:test";
import { Backoff, LONGEST_WAIT } from "../build/backoff.js";
import { Device, MemoryStore } from "../build/index.js";
import { nothing } from "../build/kept.js";
import { ENROLMENT, FakeHub, TERMS } from "./fake_hub.mjs";

const realNow = Date.now;
let hub, store, said;
beforeEach(async () => {
  hub = await new FakeHub().start();
  store = new MemoryStore(true);
  said = [];
});
afterEach(() => {
  Date.now = realNow;
  return hub.stop();
});

const page = (options = {}) => new Device(hub.url, ENROLMENT, { store, log: (line) => said.push(line), ...options });
/** As if the browser had deleted the record. */
const wipe = (life = {}) => store.change((kept) => {
  for (const name in kept) delete kept[name];
  Object.assign(kept, nothing(), life);
});

/** Search until no clicks are wanted; how often that was. */
function searches(device) {
  let count = 0;
  for (; device.wantsClicks; count++) {
    const ranking = device.rank([[1, 0], [0, 1]]);
    device.logClick(ranking, 0);
    device.finish(ranking);
  }
  return count;
}

test("a record that is deleted while its page is open gives no fresh ε", async () => {
  const device = page({ lifetimeEpsilon: 2 });
  await device.sync();
  searches(device);
  assert.equal((await device.sync()).sent, 1);
  await wipe();
  assert.equal((await device.sync()).state, "OK"); // it enrols anew
  assert.equal(hub.asked("POST /v1/enrol").length, 2);
  assert.deepEqual(said, ["what was kept is gone; the ε that was spent still counts"]);
  hub.round++;
  await device.sync();
  searches(device);
  assert.equal((await device.sync()).sent, 1);
  const told = await device.privacy();
  assert.deepEqual([told.epsilonTotal, told.messages], [2, 1]);
  assert.match(told.silent, /would exceed lifetimeEpsilon = 2/);
  assert.match((await page({ lifetimeEpsilon: 2 }).privacy()).silent, /lifetimeEpsilon/, "another page reads the same");
  assert.equal(hub.reports.size, 2);
});

test("a record that is deleted does not undo the opting out", async () => {
  const device = page();
  await device.sync();
  assert.ok(await device.optOut());
  await wipe();
  const before = hub.seen.length;
  assert.equal((await device.sync()).why, "the user has opted out");
  assert.equal(hub.seen.length, before);
  assert.ok((await page().privacy()).optedOut);
});

test("what a store has beside a record that is gone counts, and is said", async () => {
  await wipe({ erased: 1.5, out: true });
  const told = await page({ lifetimeEpsilon: 2 }).privacy();
  assert.deepEqual([told.epsilonTotal, told.optedOut, told.messages], [1.5, true, 0]);
  assert.equal(said.length, 1);
});

test("the sum says since when it counts, also after the ledger was erased", async () => {
  Date.now = () => Date.UTC(2026, 1, 3);
  const device = page();
  await device.sync();
  Date.now = () => Date.UTC(2027, 1, 3);
  assert.equal((await device.privacy()).since, "2026-02-03T00:00:00.000Z");
  await device.leave();
  assert.equal((await page().privacy()).since, "2026-02-03T00:00:00.000Z");
  await store.change((kept) => delete kept.since); // as earlier versions kept it
  assert.equal((await page().privacy()).since, null);
});

for (const [how, failing] of Object.entries({
  throws: () => { throw new DOMException("", "InvalidStateError"); },
  fails: () => Promise.reject(new DOMException("", "QuotaExceededError")),
})) {
  test(`a store that ${how} in mid-life sends nothing until it works again`, async () => {
    const device = page({ lifetimeEpsilon: 9 });
    await device.sync();
    searches(device);
    const change = store.change;
    store.change = failing;
    const { state, why } = await device.sync();
    assert.equal(state, "RETRY");
    assert.match(why, /what is kept cannot be written \((InvalidState|QuotaExceeded)Error\)/);
    assert.deepEqual(device.rank([[0, 0], [1, 0]]).order, [1, 0], "it ranks on, by the model");
    assert.deepEqual([await device.ledger(), await device.privacy()], [[], null]);
    assert.equal(hub.reports.size, 0);
    store.change = change;
    await store.change((kept) => void (kept.backoff = null));
    const again = page({ lifetimeEpsilon: 9 });
    await again.sync();
    assert.equal(hub.reports.size, 1);
  });
}

const MINUTE = 60_000;
const YEAR = 365.25 * 24 * 60 * MINUTE;
for (const [off, name] of [[3 * MINUTE, "minutes"], [10 * YEAR, "years"]]) {
  for (const sign of [-1, 1]) {
    test(`a clock that is ${name} ${sign < 0 ? "behind" : "ahead"}, and jumps back, changes no report`, async () => {
      Date.now = () => realNow() + sign * off;
      const device = page({ lifetimeEpsilon: 9 });
      await device.sync();
      searches(device);
      assert.equal((await device.sync()).sent, 1);
      Date.now = realNow;
      hub.round++;
      await device.sync();
      searches(device);
      assert.equal((await device.sync()).sent, 1);
      const [first, second] = (await device.ledger()).map(({ when }) => Date.parse(when));
      assert.ok(Math.abs(first - sign * off - realNow()) < MINUTE && Math.abs(second - realNow()) < MINUTE);
      assert.deepEqual([(await device.privacy()).epsilonTotal, hub.reports.size, said], [2, 2, []]);
    });

    test(`a pause is no longer than it was, whether the clock then jumps ${name} ${sign < 0 ? "back" : "ahead"}`, async () => {
      hub.faults.push(["POST /v1/enrol", 503, { "Retry-After": "100" }, ""]);
      const { nextIn } = await page().sync();
      assert.ok(nextIn > 99 && nextIn <= 102);
      Date.now = () => realNow() + sign * off;
      const left = (await page().sync()).nextIn; // a page that is loaded again reads the wall clock
      assert.ok(left <= LONGEST_WAIT && (sign < 0 || left <= 102), `${left}`);
      const kept = await store.change(({ backoff }) => backoff);
      assert.ok(new Backoff(kept).left() <= LONGEST_WAIT);
    });
  }
}

/** A store of pages that go as soon as an interaction is over: its row is written, and no step runs. */
class Left extends MemoryStore {
  going = false;

  change(step, ended) {
    if (!this.going || !ended) return super.change(step, ended);
    return super.change((kept) => new Promise(() => (kept.ended ??= []).push(ended)));
  }
}

test("interactions of pages that went before they were added count once, for whoever reads next", async () => {
  store = new Left(true);
  await page().sync();
  store.going = true;
  for (const done of [0, 1]) {
    const device = page();
    await device.ready;
    assert.ok(device.wantsClicks, `${done}`);
    const ranking = device.rank([[1, 0], [0, 1]]);
    device.logClick(ranking, 0);
    assert.ok(device.finish(ranking));
    const { trial, ended, messages } = structuredClone(await store.change((kept) => kept));
    assert.deepEqual([trial?.done[0] ?? 0, ended.length, messages.length], [done, 1, 0]);
  }
  store.going = false;
  assert.equal((await page().sync()).sent, 1);
  assert.equal((await store.change((kept) => kept)).ended, undefined);
});

test("an interaction that ended is dropped with the opting out, and with terms that cannot be read", async () => {
  store = new Left(true);
  await page().sync();
  for (const spoil of [(kept) => (kept.out = true), (kept) => (kept.terms.interactions = -1)]) {
    await store.change((kept) => {
      kept.out = false;
      kept.ended = [{ held: { hub: TERMS.hub, round: hub.round, seed: 5, sums: [0, 0], done: [0, 0] }, step: { adds: [1, 0], counts: [1, 0] } }];
      spoil(kept);
    });
    await page().ready;
    const kept = await store.change((kept) => kept);
    assert.deepEqual([kept.ended, kept.trial, kept.messages], [undefined, null, []]);
  }
});

test("an interaction that ended 30 days ago and its trial are discarded, together and alone", async () => {
  store = new Left(true);
  await page().sync();
  const old = Date.now() - 31 * 86_400_000;
  const held = { hub: TERMS.hub, round: hub.round, seed: 5, sums: [0, 0], done: [0, 0], since: old };
  for (const trial of [null, { ...held, done: [1, 0] }]) {
    await store.change((kept) => Object.assign(kept, { trial, ended: [{ held, step: { adds: [0, 1], counts: [0, 1] } }] }));
    await page().ready;
    const kept = await store.change((kept) => kept);
    assert.deepEqual([kept.ended, kept.trial, kept.messages], [undefined, null, []]);
  }
});

test("rows that are damaged are left out, and a store of an app that knows of no rows loses nothing", async () => {
  await page().sync();
  await store.change((kept) => void (kept.ended = [null, {}, { held: {} }]));
  await page().ready;
  assert.equal((await store.change((kept) => kept)).ended, undefined);
  const former = { lasting: true, change: (step) => store.change(step), close() {} };
  const device = page({ store: former });
  await device.ready;
  assert.equal(searches(device), TERMS.interactions);
  assert.equal((await device.sync()).sent, 1);
});

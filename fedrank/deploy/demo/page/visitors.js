// A worker with simulated visitors, each with a device of its own that speaks to the hub over the network.

import { Device, MemoryStore } from "./fedrank-device.js";
import { clicks, quality, repeatable, searches } from "./people.js";
import { Index } from "./search.js";

/** Visitors at a time; one whose budget is spent leaves, and another comes. */
const AT_ONCE = 240;
/** Searches that measure the ranker after each round. */
const MEASURING = 300;

let paused = false;

/** Visit for ever: `say` gets what happened, `wait` pauses for so many milliseconds. */
export async function visit(hub, token, limits, documents, say, wait) {
  const index = new Index(documents);
  const random = repeatable(Math.floor(Math.random() * 2 ** 31));
  const asked = searches(index, random, false);
  const measured = take(searches(index, repeatable(7), true), MEASURING);
  const byBm25 = quality(measured, ({ found }) =>
    found.map((_, place) => place).sort((a, b) => found[b].bm25 - found[a].bm25),
  );
  say({ bm25: byBm25, start: quality(measured, ({ found }) => found.map((_, place) => place)) });

  const look = await observer(hub, token);
  const arrive = () => new Device(hub, token, { ...limits, store: new MemoryStore(true), log: () => {} });
  const present = Array.from({ length: AT_ONCE }, arrive);
  let visitors = AT_ONCE;
  let messages = 0;
  let looked = 0;
  for (let turn = 0; ; turn++) {
    while (paused) await wait(100);
    const place = Math.floor(random() * AT_ONCE);
    const device = present[place];
    await device.ready;
    while (device.wantsClicks) {
      const { found, right } = asked.next().value;
      const ranking = device.rank(found.map((one) => one.features));
      for (const rank of clicks(ranking.order, right, 10, random)) device.logClick(ranking, rank);
      device.finish(ranking);
    }
    const { sent, state } = await device.sync();
    messages += sent;
    if (sent && (await device.privacy())?.silent) {
      await device.leave();
      device.close();
      present[place] = arrive();
      visitors++;
    }
    if (performance.now() - looked > 1000) {
      looked = performance.now();
      const { round, weights } = await look();
      const worth = ({ features }) => features.reduce((sum, value, k) => sum + weights[k] * value, 0);
      const now = quality(measured, ({ found }) => {
        const scores = found.map(worth);
        return found.map((_, place) => place).sort((a, b) => scores[b] - scores[a] || a - b);
      });
      say({ quality: now, round, weights: [...weights], visitors, messages, state });
    }
    if (turn % 4 === 3) await wait(8);
  }
}

/** Reads the newest model as any device may, to measure it; it never reports. */
async function observer(hub, token) {
  const answer = await fetch(`${hub}/v1/enrol`, { method: "POST", headers: { Authorization: `Bearer ${token}` } });
  const own = (await answer.json()).token;
  return async () => {
    const model = await fetch(`${hub}/v1/model`, { headers: { Authorization: `Bearer ${own}` }, cache: "no-store" });
    const bytes = new DataView(await model.arrayBuffer());
    const weights = Array.from({ length: (bytes.byteLength - 5) / 4 }, (_, k) => bytes.getFloat32(5 + 4 * k, true));
    return { round: bytes.getUint32(1, true), weights };
  };
}

function take(generator, count) {
  return Array.from({ length: count }, () => generator.next().value);
}

if (typeof WorkerGlobalScope !== "undefined") {
  self.onmessage = ({ data }) => {
    if ("paused" in data) paused = data.paused;
    else {
      const wait = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
      visit(data.hub, data.token, data.limits, data.documents, (said) => self.postMessage(said), wait);
    }
  };
}

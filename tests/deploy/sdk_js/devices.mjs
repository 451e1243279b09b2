// Devices of the JavaScript SDK in one process, with users who click on what has a large first feature.
//
// Arguments: the bundle, the hub's address, and options of a device in JSON, to which `echo` may be added: statements
// that repeat a challenge for a phone of that name; and `together`: devices go on until all have been counted, so that
// the last one does not buy alone in an epoch that needs several sales. The first line of input is the enrolment token; each further line is
// a JSON list of numbers of devices, which then search and report until the hub has counted one more message of each.
// The answer is a line: of each of them its token and what was sent; or, of a device whose number is below zero, what
// two synchronisations come to. The end of the input ends the process.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [file, hub, given = "{}"] = process.argv.slice(2);
const { echo, together, ...options } = JSON.parse(given);
let waiting = 0;
const { Device, MemoryStore } = await import(pathToFileURL(file));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const enrolment = (await lines.next()).value;
const devices = new Map();
const limits = { mostEpsilon: Infinity, mostSearchEpsilon: Infinity, lifetimeEpsilon: Infinity };

if (echo) {
  options.attest = async (challenge, kinds) => [kinds[0], { said: Buffer.from(challenge).toString("hex"), of: echo }];
}
const random = (n) => Math.floor(Math.random() * n);

function search(device, terms) {
  const features = Array.from({ length: 8 }, () => Array.from({ length: terms.n_features }, () => random(9) / 8));
  const ranking = device.rank(features);
  const liked = ranking.order.findIndex((document) => features[document][0] > 0.5);
  if (liked >= 0) device.logClick(ranking, liked);
  device.finish(ranking);
}

async function report(number) {
  if (!devices.has(number)) {
    const store = new MemoryStore(true);
    const said = [];
    const log = (line) => said.push(line);
    devices.set(number, { store, said, device: new Device(hub, enrolment, { store, log, ...limits, patience: 0, ...options }) });
  }
  const { device, store, said } = devices.get(number);
  if (number < 0) {
    const told = [await device.sync()];
    while (device.wantsClicks) search(device, (await store.change((kept) => kept)).terms);
    return { told: [...told, await device.sync()], said, ledger: await device.ledger() };
  }
  waiting += 1;
  const before = (await device.ledger()).filter(({ outcome }) => outcome === "counted").length;
  for (const end = Date.now() + 270_000; Date.now() < end; ) {
    await device.sync();
    const counted = (await device.ledger()).filter(({ outcome }) => outcome === "counted").length;
    const { token, terms, messages } = await store.change((kept) => kept);
    if (counted > before) {
      const { round, body, epsilon } = messages.at(-1);
      const { putBack } = await device.privacy();
      for (waiting -= 1; together && waiting > 0 && Date.now() < end; ) {
        await device.sync();
        while (device.wantsClicks) search(device, terms);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return { token, round, epsilon, body: Buffer.from(body).toString("hex"), messages: messages.length, putBack };
    }
    while (device.wantsClicks) search(device, terms);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`no message of device ${number} was counted: ${said} ${JSON.stringify(await device.ledger())}`);
}

for await (const line of lines) console.log(JSON.stringify(await Promise.all(JSON.parse(line).map(report))));

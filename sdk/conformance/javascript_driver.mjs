// A driver of the JavaScript SDK for `sdk/conformance/scenes.py`; the README says what a driver does. Argument: the bundle.
// What lasts is one JSON file, for want of IndexedDB.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { Device, MemoryStore } = await import(pathToFileURL(resolve(process.argv[2])));
const { FEDRANK_HUB: hub, FEDRANK_ENROLMENT: enrolment, FEDRANK_FOLDER: folder, FEDRANK_SECONDS: seconds } = process.env;
const DOCUMENTS = [[1, 0], [0, 1], [1, 1]];
const file = join(folder, "device.json");

const asText = (name, value) => (value instanceof Uint8Array ? { bytes: [...value] } : value);
const fromText = (name, value) => (Array.isArray(value?.bytes) ? Uint8Array.from(value.bytes) : value);

/** A store that outlives the process. */
class FileStore extends MemoryStore {
  constructor() {
    super(true);
  }
  async restore() {
    if (existsSync(file)) await super.change((kept) => Object.assign(kept, JSON.parse(readFileSync(file, "utf8"), fromText)));
    return this;
  }
  async change(step) {
    const [result, kept] = await super.change((kept) => [step(kept), kept]);
    writeFileSync(file, JSON.stringify(kept, asText));
    return result;
  }
}

const device = new Device(hub, enrolment, { store: await new FileStore().restore(), log() {} });
await device.ready;
for (const end = Date.now() + Number(seconds) * 1000; Date.now() < end; ) {
  await device.sync();
  while (device.wantsClicks) {
    const ranking = device.rank(DOCUMENTS);
    device.logClick(ranking, 0);
    device.finish(ranking);
  }
  await new Promise((done) => setTimeout(done, 100));
}
const { order } = device.rank(DOCUMENTS);
await device.close();
console.log(JSON.stringify(order));
process.exit(0);

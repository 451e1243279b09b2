// The demo's page: searches in the browser, lets the device learn from clicks, and shows all that leaves.

import { Device, IndexedDbStore } from "./fedrank-device.js";
import { FEATURES, Index } from "./search.js";

const EXAMPLES = ["read a csv file", "random choice", "copy a directory tree", "parse a url", "median of numbers",
  "days in a month", "compress a file", "compare two sequences", "run a program", "secure token"];
const REPORT = /\/v1\/report\/(\d+)$/;
/** Seconds between looks at the hub. */
const LOOK = 2;

const $ = (id) => document.getElementById(id);
const settings = await (await fetch("demo.json")).json();
const documents = await (await fetch("documents.json")).json();
const hub = location.origin;
const limits = { mostEpsilon: settings.epsilon, lifetimeEpsilon: settings.epsilon * settings.participations };

// ---------------------------------------------------------------------------------------------- what leaves, all of it

const traffic = { requests: 0, bytes: 0 };
const messages = [];
const plainFetch = globalThis.fetch.bind(globalThis);
globalThis.fetch = async (address, options = {}) => {
  const answer = await plainFetch(address, options);
  const report = REPORT.exec(String(address));
  traffic.requests++;
  if (report && options.body) {
    const body = new Uint8Array(await new Response(options.body).arrayBuffer());
    traffic.bytes += body.length;
    messages.unshift({ round: Number(report[1]), body, status: answer.status });
    showMessages();
  }
  showTraffic();
  return answer;
};

function showTraffic() {
  const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  $("left").textContent = `${many(traffic.bytes, "byte")} in ${many(messages.length, "report")}, and ` +
    `${many(traffic.requests - messages.length, "request")} without a body, which say only that this browser is there.`;
}

function element(name, kind, ...content) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...content);
  return made;
}

const hex = (bytes) => [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");

function showMessages() {
  $("messages").replaceChildren(...messages.slice(0, 30).map(({ round, body, status }) => {
    const seed = new DataView(body.buffer, body.byteOffset).getUint32(1, true);
    const outcome = { 200: "counted", 201: "counted", 409: "came too late", 410: "training was over" }[status];
    const parts = [["kind", body.slice(0, 1)], ["seed", body.slice(1, 5)], ["reply", body.slice(5)]];
    const row = element("li", "", element("div", "bytes", ...parts.map(([kind, part]) => element("i", kind, hex(part)))));
    const list = element("dl", "");
    const side = body[5] >= settings.outside ? "the varied one" : "the other one";
    for (const [name, kind, text] of [
      ["what it is", "kind", `a report about round ${round}: ${outcome ?? `refused (${status})`}`],
      ["seed", "seed", `${seed}: how this browser varied the ranker, drawn by chance`],
      ["report", "reply", `${body[5]}: ${side} of two rankers did better; a lie in ${settings.lies} % of cases`],
    ]) list.append(element("dt", kind, name), element("dd", "", text));
    row.append(list);
    return row;
  }));
}

// ------------------------------------------------------------------------------------------------------- the search

const index = new Index(documents);
let device;
let shown = null;

async function open() {
  device = new Device(hub, settings.enrolment, { ...limits, store: new IndexedDbStore(), log: (line) => console.info(line) });
  await device.ready;
  await synchronise();
}

let busy = false;
async function synchronise() {
  if (busy) return;
  busy = true;
  try {
    await device.sync();
    await showBudget();
  } finally {
    busy = false;
  }
}

function search(query) {
  leave();
  const found = index.candidates(query);
  const ranking = device.rank(found.map((one) => one.features));
  shown = { ranking, found, clicked: false };
  const idle = $("part").checked ? "there is one report a round, and this round has yours" : "you opted out";
  const why = $("silent").textContent ? "" : `: ${idle}`;
  $("state").textContent = found.length
    ? `${found.length} entries${ranking.learning ? "" : `; this search teaches nothing${why}`}.`
    : "No entry has these words.";
  if (found.length > 5) compare(query, found);
  $("results").replaceChildren(...ranking.order.slice(0, 12).map((place, rank) => {
    const entry = documents[found[place].number];
    const hit = element("button", "hit", element("b", "", entry.name), element("small", "", entry.kind),
      element("span", "", entry.summary.length > 220 ? `${entry.summary.slice(0, 219)}…` : entry.summary));
    hit.type = "button";
    hit.setAttribute("aria-expanded", "false");
    const row = element("li", "", hit);
    hit.addEventListener("click", () => click(row, hit, entry, ranking, rank));
    return row;
  }));
}

// ------------------------------------------------------------------------------------------------------ then and now

let compared = null;
let newest = { weights: null, round: 0 };

/** Show how a search was ranked before anybody searched, when all weights were zero, and how it is now. */
function compare(query, found) {
  compared = { query, found };
  showCompared();
}

function showCompared() {
  if (!compared || !newest.weights) return;
  const { query, found } = compared;
  const score = ({ features }) => features.reduce((sum, x, k) => sum + newest.weights[k] * x, 0);
  const then = found.map((one) => one.number);
  const now = found.map((one) => [score(one), one.number]).sort((a, b) => b[0] - a[0]).map(([, number]) => number);
  const list = (numbers, moved) => numbers.slice(0, 5).map((number, rank) => {
    const row = element("li", "", element("code", "", documents[number].name));
    const before = then.indexOf(number);
    if (moved && before > rank) row.append(element("small", "", `was ${before + 1}`));
    return row;
  });
  $("compared").textContent = query;
  $("then").replaceChildren(...list(then, false));
  $("now").replaceChildren(...list(now, true));
  $("since").textContent = `Now, after ${newest.round} round${newest.round === 1 ? "" : "s"}`;
  $("compare").hidden = false;
}

function click(row, hit, entry, ranking, rank) {
  const there = row.querySelector(".text");
  if (there) {
    there.remove();
    hit.setAttribute("aria-expanded", "false");
    return;
  }
  row.append(element("div", "text", [entry.summary, entry.body].filter(Boolean).join("\n\n")));
  hit.setAttribute("aria-expanded", "true");
  if (shown?.ranking === ranking && !shown.clicked && device.logClick(ranking, rank)) {
    shown.clicked = true;
    $("state").textContent = "This click becomes one blurred bit. It leaves with six bytes.";
    leave();
    synchronise();
  }
}

/** The search is over: its clicks become private, and are forgotten. */
function leave() {
  if (shown?.ranking.learning && shown.found.length) device.finish(shown.ranking);
}

async function showBudget() {
  const now = await device.privacy();
  if (!now) return;
  const life = limits.lifetimeEpsilon;
  const spent = now.epsilonTotal ?? 0;
  $("spent").style.width = `${Math.min(100, (100 * spent) / life)}%`;
  $("budget").textContent = `ε = ${spent.toFixed(1)} of ${life.toFixed(1)} is spent, ${settings.epsilon} a report. ` +
    `All of them together change the odds of a guess about you by a factor of ${Math.round(Math.exp(life))} at most.`;
  $("silent").textContent = now.silent ? `Silent: ${now.silent}.` : "";
  $("part").checked = !now.optedOut;
  $("part-label").textContent = now.optedOut ? "Opted out: nothing leaves" : "Taking part";
}

$("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = $("query").value.trim();
  if (query) search(query);
});
$("examples").append(...EXAMPLES.map((example) => {
  const chip = element("button", "plain", example);
  chip.type = "button";
  chip.addEventListener("click", () => {
    $("query").value = example;
    search(example);
  });
  return chip;
}));
$("part").addEventListener("change", async ({ target }) => {
  await (target.checked ? device.optIn() : device.optOut());
  await showBudget();
  if (target.checked) synchronise();
});
$("anew").addEventListener("click", async () => {
  await device.leave();
  await device.close();
  await new Promise((resolve) => {
    const request = indexedDB.deleteDatabase("fedrank-device");
    request.onsuccess = request.onerror = request.onblocked = resolve;
  });
  messages.length = traffic.requests = traffic.bytes = 0;
  showMessages();
  await open();
});

// ------------------------------------------------------------------------------------------------------- the visitors

const history = [];
let fixed = null;
const worker = new Worker("visitors.js", { type: "module" });
worker.postMessage({ hub, token: settings.enrolment, limits, documents });
worker.onmessage = ({ data }) => {
  if ("bm25" in data) {
    fixed = data.bm25;
    history.push(data.start);
  } else {
    history.push(data.quality);
    $("visitors").textContent = `${data.visitors} simulated visitors so far, ${data.messages} reports, round ${data.round}.`;
    showWeights(data.weights);
    newest = data;
    showCompared();
  }
  showCurve();
};
let paused = false;
$("pause").addEventListener("click", () => {
  paused = !paused;
  worker.postMessage({ paused });
  $("pause").textContent = paused ? "Let them go on" : "Pause them";
});

function svg(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}

function showCurve() {
  const [left, right, top, bottom] = [30, 318, 10, 150];
  const points = thinned(history, 240);
  const x = (place) => left + ((right - left) * place) / Math.max(1, points.length - 1);
  const y = (value) => bottom - (bottom - top) * value;
  const parts = [];
  for (const value of [0, 0.25, 0.5, 0.75, 1]) {
    parts.push(svg("line", { class: "axis", x1: left, x2: right, y1: y(value), y2: y(value) }));
    parts.push(svg("text", { x: left - 5, y: y(value) + 4, "text-anchor": "end" }, String(value)));
  }
  if (fixed !== null) {
    parts.push(svg("line", { class: "bm25", x1: left, x2: right, y1: y(fixed), y2: y(fixed) }));
    parts.push(svg("text", { class: "of-bm25", x: right + 4, y: y(fixed) + (points.at(-1) > fixed ? 12 : -4) }, "BM25"));
  }
  parts.push(svg("path", { class: "learnt", d: `M${points.map((value, k) => `${x(k).toFixed(1)},${y(value).toFixed(1)}`).join("L")}` }));
  const last = points.at(-1);
  parts.push(svg("text", { class: "now", x: right + 4, y: y(last) + (fixed !== null && last <= fixed ? 14 : 0) }, last.toFixed(2)));
  $("curve").replaceChildren(...parts);
  const minutes = ((history.length - 1) / 60).toFixed(1);
  $("curve-says").textContent = `Mean reciprocal rank of what is sought, in 300 searches that nobody learns from; ${minutes} ` +
    `minutes. It began at ${history[0].toFixed(2)}${fixed === null ? "" : `; plain BM25 has ${fixed.toFixed(2)}`}.`;
}

function thinned(values, most) {
  const step = Math.ceil(values.length / most);
  return values.filter((_, k) => k % step === 0 || k === values.length - 1);
}

function showWeights(weights) {
  const most = Math.max(...weights.map(Math.abs), 1e-9);
  const rows = $("weights").children.length ? $("weights").querySelectorAll("i") : FEATURES.map((name) => {
    const bar = element("i", "", document.createElement("u"));
    $("weights").append(element("span", "", name), bar);
    return bar;
  });
  rows.forEach((bar, k) => {
    const share = (50 * Math.abs(weights[k])) / most;
    bar.className = weights[k] < 0 ? "less" : "";
    bar.firstChild.style.width = `${share}%`;
    bar.firstChild.style.left = weights[k] < 0 ? `${50 - share}%` : "50%";
  });
}

await open();
showTraffic();
$("state").textContent = `${documents.length} entries. The ranker begins by knowing nothing: watch it learn.`;
compare(EXAMPLES[2], index.candidates(EXAMPLES[2]));
setInterval(synchronise, 1000 * LOOK);
Object.assign(globalThis, { fedrankDemo: { device: () => device, history, messages, search, synchronise } });

// The page of a federated search: asks the portal it came from, and nobody else.
"use strict";

const state = document.getElementById("state");
const notices = document.getElementById("notices");
const list = document.getElementById("hits");
const more = document.getElementById("more");
/** The answer that is shown: its name at the portal, how many of its hits are, and whose they are. */
let shownAnswer = null;
/** Counts questions, so that an answer that comes after another question was asked is not shown. */
let turn = 0;

async function post(path, body) {
  const response = await fetch(path, { method: "POST", body: JSON.stringify(body) });
  const found = await response.json();
  if (!response.ok) throw new Error(found.detail || "The search failed.");
  return found;
}

function element(name, kind, text) {
  const made = document.createElement(name);
  made.className = kind;
  made.textContent = text;
  return made;
}

// What a reader must know of a list before believing it: who is missing from it, and whether its order means something.
function warned(found) {
  const said = Object.entries(found.missing).map(([owner, why]) =>
    why.startsWith("no further hits") ? `${owner} gave ${why}.` : `${owner} did not answer (${why}): its documents are not in this list.`);
  if (found.not_asked.length) said.push(`Not asked, as past answers let expect little: ${found.not_asked.join(", ")}.`);
  const alone = found.own_statistics;
  const { owners } = shownAnswer;
  if (alone.length && owners.size > 1) {
    said.push(`Scores of different owners do not compare yet: ${alone.join(", ")} scored without common statistics. The order is right within each owner only.`);
  }
  return said;
}

// A word that no document holds, with the nearest word that one does, to search for instead.
function unknown([typed, near]) {
  const row = element("li", "", `No owner that answered has a document that you may read with “${typed}”. `);
  if (near) {
    const instead = element("button", "instead", `Search for “${near}”`);
    instead.type = "button";
    instead.addEventListener("click", () => {
      const query = document.getElementById("query");
      const escaped = typed.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
      query.value = query.value.replace(new RegExp(`(?<![\\p{L}\\p{N}:])${escaped}(?![\\p{L}\\p{N}])`, "gu"), near);
      document.getElementById("ask").requestSubmit();
    });
    row.append(instead);
  }
  return row;
}

// A piece of the text with the words that were asked for marked.
function marked({ text, marks }) {
  const made = element("p", "snippet", "");
  let at = 0;
  for (const [start, end] of marks) {
    made.append(text.slice(at, start), element("mark", "", text.slice(start, end)));
    at = end;
  }
  made.append(text.slice(at));
  return made;
}

function shown(answer, hit, number) {
  const row = document.createElement("li");
  const title = element("button", "title", hit.title || "A document without a shown title");
  title.type = "button";
  title.setAttribute("aria-expanded", "false");
  const about = element("div", "about", "");
  about.append(element("span", "owner", hit.owner), element("span", "score", `score ${hit.score.toFixed(1)}`));
  if (hit.cosine) about.append(element("span", "score", `cosine ${hit.cosine.toFixed(2)}`));
  row.append(title, about);
  if (hit.snippet.text) row.append(marked(hit.snippet));
  title.addEventListener("click", async () => {
    const there = row.querySelector(".body");
    if (there) {
      there.hidden = !there.hidden;
      title.setAttribute("aria-expanded", String(!there.hidden));
      return;
    }
    const body = element("div", "body", "Fetching it from its owner …");
    row.append(body);
    title.setAttribute("aria-expanded", "true");
    try {
      const document_ = await post("v1/fetch", { answer, hit: number });
      if (document_.title) title.textContent = document_.title;
      body.textContent = document_.body || "The document has no text besides its title.";
    } catch (error) {
      body.textContent = error.message;
    }
  });
  return row;
}

// The hits of an answer after those that are shown, what is to be known of the list, and whether there are more.
function show(found, seconds) {
  const first = shownAnswer ? shownAnswer.count : 0;
  list.append(...found.hits.map((hit, place) => shown(found.answer, hit, first + place)));
  const many = first + found.hits.length;
  const owners = new Set([...(shownAnswer?.owners ?? []), ...found.hits.map((hit) => hit.owner)]);
  shownAnswer = { name: found.answer, count: many, owners };
  const documents = many === 1 ? "document" : "documents";
  const asked = Object.keys(found.missing).length ? "No owner that answered" : "No owner";
  const count = found.more ? `The best ${many} documents` : `${many} ${documents}`;
  state.textContent = found.note ? found.note : many ? `${count} in ${seconds} s.` : `${asked} has a document with these words.`;
  notices.replaceChildren(...warned(found).map((text) => element("li", "", text)), ...Object.entries(found.unknown).map(unknown));
  more.hidden = !found.more;
}

// Ask the portal, and show what it says; `path` is a search or the hits after those of one.
async function ask(path, body) {
  state.textContent = "Asking every owner …";
  const mine = ++turn;
  const started = performance.now();
  try {
    const found = await post(path, body);
    if (mine === turn) show(found, ((performance.now() - started) / 1000).toFixed(2));
  } catch (error) {
    if (mine !== turn) return;
    state.textContent = shownAnswer ? "No further documents came." : "There is no answer.";
    notices.replaceChildren(element("li", "", error.message));
  }
}

more.addEventListener("click", async () => {
  more.disabled = true;
  const last = list.lastElementChild;
  await ask("v1/more", { answer: shownAnswer.name, k: 20 });
  more.disabled = false;
  last.nextElementSibling?.querySelector("button").focus(); // as the button may be gone
});

document.getElementById("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const query = document.getElementById("query").value.trim();
  if (!query) return;
  notices.replaceChildren();
  list.replaceChildren();
  more.hidden = true;
  shownAnswer = null;
  ask("v1/search", { query, k: 20 });
});

fetch("v1/federation").then((response) => response.json()).then((about) => {
  document.title = `Search · ${about.name}`;
  document.getElementById("federation").textContent = about.name;
  document.getElementById("owners").textContent = `Documents of ${about.owners.join(", ")}`;
});

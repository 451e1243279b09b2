// The page of a federated search: asks the portal it came from, and nobody else.
"use strict";

const state = document.getElementById("state");
const list = document.getElementById("hits");

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

function shown(answer, hit, number) {
  const row = document.createElement("li");
  const title = element("button", "title", hit.title || "A document without a shown title");
  title.type = "button";
  title.setAttribute("aria-expanded", "false");
  const about = element("div", "about", "");
  about.append(element("span", "owner", hit.owner), element("span", "score", `score ${hit.score.toFixed(1)}`));
  if (hit.cosine) about.append(element("span", "score", `cosine ${hit.cosine.toFixed(2)}`));
  row.append(title, about);
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
      body.textContent = document_.body || "The document has no text besides its title.";
    } catch (error) {
      body.textContent = error.message;
    }
  });
  return row;
}

document.getElementById("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const query = document.getElementById("query").value.trim();
  if (!query) return;
  state.textContent = "Asking every owner …";
  const started = performance.now();
  try {
    const found = await post("v1/search", { query, k: 20 });
    list.replaceChildren(...found.hits.map((hit, number) => shown(found.answer, hit, number)));
    const seconds = ((performance.now() - started) / 1000).toFixed(2);
    const said = [found.hits.length ? `${found.hits.length} documents in ${seconds} s.` : "No owner has a document with these words."];
    for (const [owner, why] of Object.entries(found.missing)) said.push(`${owner} is missing: ${why}.`);
    if (found.own_statistics.length) said.push(`Scores of ${found.own_statistics.join(", ")} do not compare with the others' yet.`);
    state.textContent = said.join(" ");
  } catch (error) {
    list.replaceChildren();
    state.textContent = error.message;
  }
});

fetch("v1/federation").then((response) => response.json()).then((about) => {
  document.title = `Search · ${about.name}`;
  document.getElementById("federation").textContent = `${about.name}: ${about.owners.join(", ")}`;
  document.getElementById("learns").hidden = !about.learns;
});

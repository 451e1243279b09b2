"use strict";
// The page comes drawn from the hub. Here it is fetched again and what has changed is changed in place: nothing
// flickers, open details stay open, selected text stays selected, and a pointer keeps its tooltip.
const every = 2000, patience = 10000, longest = 30000; // milliseconds
const here = location.origin + location.pathname + location.search; // without a password that href may carry
const contact = document.getElementById("contact");
let title = document.title;
let heard = new Date(), failures = 0, timer, asking = false;

function change(now, next) {
  if (now.isEqualNode(next)) return;
  if (now.nodeName !== next.nodeName) return now.replaceWith(document.importNode(next, true));
  if (now.nodeType === Node.TEXT_NODE) return void (now.data = next.data);
  for (const { name } of [...now.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") now.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (now.getAttribute(name) !== value) now.setAttribute(name, value);
  }
  const old = [...now.childNodes];
  [...next.childNodes].forEach((child, i) => {
    if (old[i]) change(old[i], child);
    else now.append(document.importNode(child, true));
  });
  old.slice(next.childNodes.length).forEach((child) => child.remove());
}

function say(words) {
  // Said once: a reader that speaks would repeat every change.
  if (contact.textContent !== words) contact.textContent = words;
  document.body.classList.toggle("silent", words !== "");
}

async function refresh() {
  if (asking) return;
  asking = true;
  clearTimeout(timer);
  try {
    const answer = await fetch(here, { cache: "no-store", signal: AbortSignal.timeout(patience) });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = page.querySelector("main");
    if (!main || !page.documentElement.dataset.build) throw new Error("something else answers");
    if (page.documentElement.dataset.build !== document.documentElement.dataset.build) return location.reload();
    change(document.querySelector("main"), main);
    document.title = title = page.title;
    [heard, failures] = [new Date(), 0];
    say("");
  } catch (error) {
    failures += 1;
    const why = error.name === "Error" ? ` (${error.message})` : "";
    const since = heard.toISOString().slice(0, 19).replace("T", " ");
    say(`The hub has not been heard since ${since} UTC${why}. What you see is how things stood then.`);
    document.title = `No answer: ${title}`;
  } finally {
    asking = false;
    plan();
  }
}

function plan() {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, Math.min(every * 2 ** failures, longest));
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : refresh()));
plan();

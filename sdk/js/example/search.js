// A search page whose order is learnt from the clicks of its visitors. What is searched and clicked stays here.

const HUB = "http://127.0.0.1:8750";
// For a trial, in which one person is every device and messages have little noise. A page for people leaves both out: then
// a device sends one message of ε = 1 in its life, and looks at the hub about once a minute.
const LIMITS = { mostEpsilon: 8, mostSearchEpsilon: 8, lifetimeEpsilon: 1000 };
const LONGEST_PAUSE = 0.5;

const RECIPES = [
  ["Bread soup", "stale bread, tomatoes, garlic, basil", 90, 4.1],
  ["Lentil soup", "red lentils, carrots, cumin, lemon", 35, 4.7],
  ["Onion soup", "onions, bread, cheese, wine", 80, 4.3],
  ["Pumpkin soup", "pumpkin, ginger, cream", 50, 3.9],
  ["Rye bread", "rye flour, sourdough, salt", 600, 4.6],
  ["Flat bread", "wheat flour, yoghurt, salt", 25, 4.2],
  ["Lentil salad", "green lentils, mustard, parsley", 30, 4.0],
  ["Tomato salad", "tomatoes, onions, bread, oil", 15, 3.8],
];
const $ = (selector) => document.querySelector(selector);
const wordsOf = (text) => text.toLowerCase().match(/\p{L}+/gu) ?? [];

/** What the ranker sees of a recipe in a search: numbers of about 0 to 1, the same for every visitor. */
function featuresOf([name, ingredients, minutes, stars], query) {
  const share = (text) => query.filter((word) => wordsOf(text).some((one) => one.startsWith(word))).length / query.length;
  return [share(name), share(ingredients), 1 / (1 + minutes / 30), stars / 5];
}

async function start() {
  const enrolment = (await (await fetch("enrolment.token")).text()).trim();
  const device = new fedrank.Device(HUB, enrolment, LIMITS);
  let ranking = null;

  async function synchronise() {
    const { nextIn, why } = await device.sync();
    const { messages, epsilonTotal } = (await device.privacy()) ?? {};
    $("[role=status]").textContent = `${messages} messages sent, ε = ${epsilonTotal} in all. ${why}`;
    return nextIn;
  }
  (async function again() {
    setTimeout(again, 1000 * Math.min(LONGEST_PAUSE, await synchronise()));
  })();

  $("input[type=search]").addEventListener("change", ({ target }) => {
    // On Enter: a search for each letter would count as one without a click.
    const query = wordsOf(target.value);
    const found = query.length ? RECIPES.filter((recipe) => featuresOf(recipe, query).slice(0, 2).some((x) => x > 0)) : [];
    if (!found.length) return $("ol").replaceChildren();
    ranking = device.rank(found.map((recipe) => featuresOf(recipe, query)));
    $("ol").replaceChildren(...ranking.order.map((i, position) => hit(found[i], ranking, position)));
  });

  function hit([name, ingredients, minutes, stars], shown, position) {
    const link = document.createElement("a");
    link.href = `#${encodeURIComponent(name)}`;
    link.append(name, Object.assign(document.createElement("small"), { textContent: ` ${minutes} min, ${stars} of 5` }));
    link.addEventListener("click", () => {
      Object.assign($("p"), { hidden: false, textContent: `${name}: ${ingredients}` });
      device.logClick(shown, position);
      device.finish(shown); // the search is over: its clicks become one private number
    });
    const row = document.createElement("li");
    row.append(link);
    return row;
  }

  $("input[type=checkbox]").addEventListener("change", async ({ target }) => {
    await (target.checked ? device.optIn() : device.optOut());
    await synchronise();
  });
  await device.ready;
  $("input[type=checkbox]").checked = !(await device.privacy())?.optedOut;
}
start();

"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const folds = all("main > details");

  // One button opens or closes all sections.
  if (folds.length > 1) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "all";
    const label = () => { button.textContent = folds.every(fold => fold.open) ? "Close all sections" : "Open all sections"; };
    button.addEventListener("click", () => {
      const open = !folds.every(fold => fold.open);
      folds.forEach(fold => { fold.open = open; });
    });
    folds.forEach(fold => fold.addEventListener("toggle", label));
    label();
    folds[0].before(button);
  }

  // A link to something in a section opens the section.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Paper cannot be unfolded.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach(fold => { fold.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach(fold => { fold.open = false; }));

  // Tables sort by the column whose heading is pressed: largest first, smallest first, as it was.
  const UNITS = { "%": 0.01, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, million: 1e6 };
  const numberOf = text => {
    const found = /^([+−-]?)\s*(?:([\d,]*\.?\d+(?:e[+-]?\d+)?)|(∞))\s*(%|[kMGT]B|million)?/.exec(text);
    if (!found) return null;
    const size = found[3] ? Infinity : Number(found[2].replaceAll(",", "")) * (UNITS[found[4]] || 1);
    return found[1] && found[1] !== "+" ? -size : size;
  };
  for (const table of all("table")) {
    const body = table.tBodies[0], rows = [...body.rows];
    if (rows.length < 2) continue;
    all("thead th", table).forEach((head, column) => {
      const numeric = head.classList.contains("number");
      const text = row => row.cells[column] ? row.cells[column].textContent.trim() : "";
      const button = document.createElement("button");
      button.type = "button";
      button.title = "Sort by this column";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = numeric ? "descending" : "ascending", second = numeric ? "ascending" : "descending";
        const now = head.getAttribute("aria-sort");
        const next = now === null ? first : now === first ? second : null;
        all("thead th", table).forEach(other => other.removeAttribute("aria-sort"));
        const sign = next === "ascending" ? 1 : -1;
        const order = (a, b) => {
          if (!numeric) return sign * text(a).localeCompare(text(b), undefined, { numeric: true });
          const x = numberOf(text(a)), y = numberOf(text(b));
          if (x === null || y === null) return (x === null) - (y === null);  // what has no number comes last
          return x === y ? 0 : sign * (x < y ? -1 : 1);
        };
        if (next) head.setAttribute("aria-sort", next);
        body.append(...(next ? [...rows].sort(order) : rows));
      });
    });
  }

  // Rows of a table are chosen by the values of some of its columns.
  for (const table of all("table:has(th[data-filter])")) {
    const rows = [...table.tBodies[0].rows], bar = document.createElement("div"), count = document.createElement("output");
    bar.className = "filters";
    const text = (row, column) => row.cells[column].textContent.trim();
    const choices = all("thead th", table).flatMap((head, column) => {
      if (!head.hasAttribute("data-filter")) return [];
      const label = document.createElement("label"), select = document.createElement("select");
      const values = [...new Set(rows.map(row => text(row, column)))];
      select.append(new Option("all", ""), ...values.map(value => new Option(value)));
      if (values.includes(head.dataset.filter)) select.value = head.dataset.filter;
      label.append(head.textContent + " ", select);
      bar.append(label);
      return [[column, select]];
    });
    const apply = () => {
      let shown = 0;
      for (const row of rows) {
        row.hidden = !choices.every(([column, select]) => !select.value || text(row, column) === select.value);
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${rows.length} rows`;
    };
    bar.addEventListener("change", apply);
    bar.append(count);
    (table.closest(".scroll") || table).before(bar);
    apply();
    addEventListener("beforeprint", () => rows.forEach(row => { row.hidden = false; }));
    addEventListener("afterprint", apply);
  }

  // A series of a chart goes and comes back when its entry in the legend is pressed. Its marks have the entry's paint.
  const paint = mark => ["stroke", "fill"].map(name => mark.getAttribute(name)).find(value => value && value !== "none");
  for (const svg of all("svg")) {
    const entries = all(".entry", svg);
    if (entries.length < 2) continue;
    const marks = all(".panel :is(path, line, circle, rect)", svg);
    const belongs = entries.map(entry => marks.filter(mark => paint(mark) === paint(entry.firstElementChild)));
    if (belongs.some(some => some.length === 0)) continue;  // a legend of shapes, or of shades
    svg.setAttribute("role", "group");
    entries.forEach((entry, place) => {
      const box = entry.getBBox(), area = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [name, value] of Object.entries({ x: box.x - 3, y: box.y - 5, width: box.width + 8, height: box.height + 10 }))
        area.setAttribute(name, value);
      area.setAttribute("class", "hit");
      entry.prepend(area);
      entry.setAttribute("class", "toggle");
      entry.setAttribute("role", "button");
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("aria-label", "Show " + entry.textContent.trim());
      entry.setAttribute("aria-pressed", "true");
      const toggle = () => {
        const shown = entry.getAttribute("aria-pressed") !== "true";
        entry.setAttribute("aria-pressed", String(shown));
        belongs[place].forEach(mark => { mark.style.display = shown ? "" : "none"; });
      };
      entry.addEventListener("click", toggle);
      entry.addEventListener("keydown", event => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      });
    });
  }
})();

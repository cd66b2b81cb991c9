"use strict";
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// --- tables sort by a column -----------------------------------------------------------------

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, table = head.closest("table"), body = table.tBodies[0];
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    const key = (row) => {
      const cell = row.cells[column];
      return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent;
    };
    const rows = Array.from(body.rows).map((row) => [key(row), row]);
    const empty = (x) => x === "";
    rows.sort(([a], [b]) => {
      if (empty(a) || empty(b)) return empty(a) - empty(b);
      const order = typeof a === "number" && typeof b === "number" ? a - b
        : String(a).localeCompare(String(b), "en", { numeric: true });
      return up ? order : -order;
    });
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    body.append(...rows.map(([, row]) => row));
  });
}

// --- tables behind tabs, each with a filter; without scripts they stand one below the other --

for (const group of document.querySelectorAll(".tabs")) {
  const panels = Array.from(group.querySelectorAll(".tab"));
  const list = make("div", { class: "tablist", role: "tablist" });
  const show = (chosen) => panels.forEach((panel, i) => {
    panel.hidden = panel !== chosen;
    list.children[i].setAttribute("aria-selected", panel === chosen);
    list.children[i].tabIndex = panel === chosen ? 0 : -1;
  });
  for (const panel of panels) {
    const tab = make("button", { type: "button", role: "tab", id: `tab-${panel.id}`,
      "aria-controls": panel.id }, panel.querySelector("h3").textContent);
    panel.setAttribute("role", "tabpanel");
    panel.setAttribute("aria-labelledby", tab.id);
    tab.addEventListener("click", () => show(panel));
    list.append(tab);
    const rows = Array.from(panel.querySelectorAll("tbody tr"));
    if (rows.length < 8) continue;
    const input = make("input", { type: "search" });
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    panel.querySelector(".table").before(
      make("label", { class: "filter" }, "Only lines with ", input));
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const now = panels.findIndex((panel) => !panel.hidden);
    const next = (now + step + panels.length) % panels.length;
    show(panels[next]);
    list.children[next].focus();
  });
  group.classList.add("live");
  group.prepend(list);
  show(panels[0]);
}

// --- the explorer: scores and storm of one cell of a grid, and of another that is pinned -----

const svg = (tag, attributes, text = "") => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
};

// round numbers from low to high, about n of them
const ticks = (low, high, n) => {
  const raw = (high - low) / n, ten = 10 ** Math.floor(Math.log10(raw));
  const step = ten * [1, 2, 5, 10].find((k) => k * ten >= raw);
  const first = Math.ceil(low / step - 1e-9);
  const count = Math.floor(high / step + 1e-9) - first + 1;
  return Array.from({ length: count }, (_, i) => Number(((first + i) * step).toPrecision(12)));
};

const drawStorms = (storms, top) => {
  const [width, height, left, bottom] = [640, 240, 62, 40];
  const first = storms[0][0], end = first.start + first.step * first.median.length;
  const x = (t) => left + (t - first.start) / (end - first.start) * (width - left - 10);
  const y = (v) => height - bottom - v / top * (height - bottom - 14);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  const line = (storm, values) => values.map((v, i) => {
    const [a, b] = [storm.start + i * storm.step, storm.start + (i + 1) * storm.step];
    return `${x(a).toFixed(1)},${y(v).toFixed(1)} ${x(b).toFixed(1)},${y(v).toFixed(1)}`;
  });
  for (const v of ticks(0, top, 4)) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - 10, y1: y(v), y2: y(v) }),
      svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${v.toLocaleString("en")}/s`));
  }
  for (const t of ticks(first.start, end, 7)) {
    picture.append(svg("text", { x: x(t), y: height - bottom + 16, "text-anchor": "middle" }, t));
  }
  picture.append(svg("text", { x: (left + width) / 2, y: height - 6, "text-anchor": "middle" },
    "seconds since the fault began, or since the start where there is none"));
  for (const [storm, name] of storms) {
    const around = [...line(storm, storm.high), ...line(storm, storm.low).reverse().map(
      (step) => step.split(" ").reverse().join(" "))];
    picture.append(svg("polygon", { class: `band ${name}`, points: around.join(" ") }),
      svg("polyline", { class: "capacity", points: line(storm, storm.capacity.map(
        (v) => Math.min(v, 1.05 * top))).join(" ") }),
      svg("polyline", { class: `median ${name}`, points: line(storm, storm.median).join(" ") }));
  }
  const told = storms.map(([storm, name]) =>
    `${name}: the median of calls rises to ${Math.max(...storm.median).toLocaleString("en")}/s`);
  picture.setAttribute("aria-label", told.join("; "));
  return picture;
};

for (const place of document.querySelectorAll(".explorer")) {
  const data = JSON.parse(place.nextElementSibling.textContent);
  const n = data.axes.length;
  const cells = new Map(data.cells.map((cell) => [cell.slice(0, n).join(), cell]));
  const at = data.first.slice(0, n);
  let pinned = null;
  const controls = make("div", { class: "controls" });
  const shown = make("div", { "aria-live": "polite" });
  const pin = make("button", { type: "button" });
  const named = (cell) => data.axes.map((axis, i) => `${axis.name} ${axis.values[cell[i]]}`).join(", ");
  const top = (cell) => Math.max(1, ...data.cells.filter((other) => other[n + 1] === cell[n + 1])
    .flatMap((other) => (data.storms[other[n]] || { high: [0] }).high));
  const show = () => {
    const here = cells.get(at.join());
    pin.textContent = pinned ? "Unpin" : "Pin this cell";
    pin.disabled = !here && !pinned;
    shown.replaceChildren();
    if (!here) {
      shown.append(make("p", {}, "The experiment has no such cell."));
      if (!pinned) return;
    }
    const both = [[here, "here"], [pinned, "pinned"]].filter(([cell]) => cell);
    const heads = Array.from(new Set(both.flatMap(([cell]) => data.heads[cell[n + 1]])));
    const body = make("tbody", {});
    for (const head of heads) {
      const row = make("tr", {}, make("th", { scope: "row" }, head));
      for (const [cell, name] of both) {
        const score = data.scores[cell[n]][data.heads[cell[n + 1]].indexOf(head)] || ["–", ""];
        row.append(make("td", { class: `number ${name}` }, make("span", {}, score[0],
          make("br"), make("small", {}, score[1]))));
      }
      body.append(row);
    }
    const first = make("tr", {}, make("td", {}));
    for (const [cell, name] of both) {
      first.append(make("th", { scope: "col", class: `number ${name}` }, `${name} `,
        make("small", {}, name === "pinned" ? named(cell) : "")));
    }
    shown.append(make("table", {}, make("thead", {}, first), body));
    const storms = both.filter(([cell]) => data.storms[cell[n]])
      .map(([cell, name]) => [data.storms[cell[n]], name]);
    if (storms.length) {
      shown.append(drawStorms(storms, Math.max(...both.map(([cell]) => top(cell)))));
    }
  };
  data.axes.forEach((axis, i) => {
    const value = make("output", {}, axis.values[at[i]]);
    const input = axis.slider
      ? make("input", { type: "range", min: 0, max: axis.values.length - 1, value: at[i] })
      : make("select", {}, ...axis.values.map((text, k) => make("option", { value: k }, text)));
    input.value = at[i];
    input.addEventListener("input", () => {
      at[i] = Number(input.value);
      value.textContent = axis.values[at[i]];
      show();
    });
    controls.append(make("label", {}, `${axis.name} `, input, axis.slider ? value : ""));
  });
  pin.addEventListener("click", () => {
    pinned = pinned ? null : cells.get(at.join());
    show();
  });
  place.replaceChildren(controls, pin, shown);
  show();
}

"use strict";
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};

// --- tables sort, are searched and saved; lines are found among all that the page holds --------

const rowOf = (heads) => (line) => {
  const row = make("tr");
  line.forEach(([text, value, more, bar, best], i) => {
    const cell = i ? make("td") : make("th", { scope: "row" }), place = i ? make("span") : cell;
    place.append(text || "", ...(more ? [make("br"), make("small", {}, more)] : []));
    if (typeof value === "number") cell.dataset.v = value;
    if (heads[i].classList.contains("number")) cell.classList.add("number");
    if (best) cell.classList.add("best");
    if (bar) {
      const [share, low, high] = bar.map((x) => 100 * x);
      cell.classList.add("barred");
      cell.append(make("span", { class: "bar", "aria-hidden": "true" },
        make("i", { style: `left:${low}%;right:${100 - high}%` }),
        make("b", { style: `left:${share}%` })), " ");
    }
    if (i) cell.append(place);
    row.append(cell);
  });
  return row;
};

// what is read in a field: its text, and what is below it
const textsOf = (cell) => {
  const place = cell.querySelector(":scope > span:not(.bar)") || cell;
  const plain = (node) => (node ? node.textContent : "").replace(/\s+/g, " ").trim();
  return [plain(place.firstChild), plain(place.querySelector("small"))].filter((text) => text);
};

// a text that a spreadsheet would run as a formula gets a quote before it
const csvField = (value) => {
  const text = typeof value === "string" ? value.replace(/^[=+\-@].+/, "'$&") : String(value);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

// a number has its column, and what is read of it, where that is more, the next
const csvOf = (heads, rows) => {
  const columns = heads.flatMap((head, i) => {
    const name = head.textContent.trim(), cells = rows.map((row) => row.cells[i]);
    const read = cells.map((cell) => textsOf(cell).join("; "));
    if (!head.classList.contains("number")) return [[name, ...read]];
    const values = cells.map(({ dataset: { v } }) => v === undefined ? "" : Number(v));
    const plain = read.every((text, k) => text.replaceAll(",", "") === String(values[k]));
    return [[name, ...values], ...(plain ? [] : [[`${name}, as shown`, ...read]])];
  });
  const lines = columns[0].map((_, k) => columns.map((column) => csvField(column[k])).join(","));
  return `\ufeff${lines.join("\n")}\n`;
};

for (const place of document.querySelectorAll(".table")) {
  const table = place.querySelector("table"), body = table.tBodies[0];
  const heads = Array.from(table.tHead.rows[0].cells), data = place.querySelector("script");
  const rows = Array.from(body.rows), most = rows.length, nLines = Number(place.dataset.lines);
  let held = !data, words = [];
  const found = () => {
    if (!held) rows.push(...JSON.parse(data.textContent).map(rowOf(heads)));
    held = true;
    const has = (row) => words.every((word) => row.textContent.toLowerCase().includes(word));
    return rows.filter(has);
  };
  const told = make("output");
  const show = () => {
    const some = found(), n = (k) => k.toLocaleString("en");
    body.replaceChildren(...some.slice(0, most));
    const among = rows.length < nLines ? ` of the first ${n(rows.length)}` : "";
    told.textContent = !words.length ? "" : !some.length ? `No line${among} matches.`
      : `${n(some.length)} of ${n(rows.length)} lines`
        + (some.length > most ? `, the first ${n(most)} are shown` : "");
  };
  const tools = make("div", { class: "tools" });
  const isLong = most >= 12;
  if (isLong) {
    const input = make("input", { type: "search" });
    input.addEventListener("input", () => {
      words = input.value.toLowerCase().split(/\s+/).filter((word) => word);
      show();
    });
    tools.append(make("label", {}, "Only lines with ", input), told);
  }
  const save = make("button", { type: "button", title: "Save these lines as CSV" }, "CSV");
  save.addEventListener("click", () => {
    const file = new Blob([csvOf(heads, found())], { type: "text/csv" });
    const link = make("a", { href: URL.createObjectURL(file), download: `${place.id}.csv` });
    link.click();
    // a browser that is busy begins to save it later
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  });
  tools.append(save);
  place[isLong ? "before" : "after"](tools);
  for (const button of table.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.parentElement, column = head.cellIndex;
      const up = head.getAttribute("aria-sort") !== "ascending";
      const key = (row) => {
        const cell = row.cells[column];
        return cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent;
      };
      const empty = (x) => x === "";
      found(); // all that the page holds
      const keyed = rows.map((row) => [key(row), row]);
      keyed.sort(([a], [b]) => {
        if (empty(a) || empty(b)) return empty(a) - empty(b);
        const order = typeof a === "number" && typeof b === "number" ? a - b
          : String(a).localeCompare(String(b), "en", { numeric: true });
        return up ? order : -order;
      });
      rows.splice(0, rows.length, ...keyed.map(([, row]) => row));
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      show();
    });
  }
}

// --- tables behind tabs; without scripts they stand one below the other ----------------------

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

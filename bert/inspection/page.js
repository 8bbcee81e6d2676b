"use strict";
// All text goes onto the page as text: nothing here makes HTML of a string.
const page = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
const size = page.tokens.length;
const numHeads = page.attention.length ? page.attention[0].length : 0;
// Thousandths below which no line is drawn.
const faintest = 10;
const rowHeight = 24;
const most = 8;
const means = new Map();
// What is shown: it stands behind the # of the address, so that a link can choose it.
const state = { layer: page.attention.length - 1, head: "mean", token: null, column: null, view: "lines" };

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== "" && child !== null));
  return made;
}

// A text whose direction is its own.
const own = (text) => element("bdi", "", text);
const share = (thousandths) => (thousandths / 1000).toFixed(3);
const heading = (token) => page.tokens[token] + " (" + token + ")";
const named = (token) => [own(page.tokens[token]), " (" + token + ")"];

function table(heads, rows) {
  const titles = heads.map((name) => element("th", "", name));
  return element("table", "", element("thead", "", element("tr", "", ...titles)), element("tbody", "", ...rows));
}

function bar(name, part, text) {
  const row = element("li", "", element("span", "name", ...name), element("span", "number", text));
  row.style.setProperty("--part", part);
  return row;
}

function tip(text, event) {
  const shown = byId("tip");
  shown.hidden = text === "";
  shown.textContent = text;
  if (!event) return;
  const room = document.documentElement.clientWidth - shown.offsetWidth - 8;
  shown.style.left = Math.max(4, Math.min(event.pageX + 14, room)) + "px";
  shown.style.top = event.pageY + 16 + "px";
}

// The pieces.

function piece(position) {
  const made = element("span", page.tokens[position] === page.unknown ? "piece unknown" : "piece",
    own(page.tokens[position]), element("small", "", position + " · " + page.ids[position]));
  made.title = "position " + position + ", id " + page.ids[position] + ", segment " + page.segments[position];
  return made;
}

function showWords() {
  const rows = [];
  let position = 0;
  for (const word of page.words) {
    const places = word.pieces.map((_, i) => position + i);
    const isChanged = word.typed !== "" && word.typed !== word.cleaned;
    const segment = page.segments[Math.min(position, size - 1)];
    position += places.length;
    const box = element("li", "segment" + segment + (word.typed === "" ? " special" : ""));
    if (word.typed) box.append(element("div", "typed", own(word.typed)));
    if (isChanged) box.append(element("div", "changed", own(word.cleaned || "nothing")));
    if (word.words.length > 1) box.append(element("div", "split", ...word.words.map(own)));
    box.append(element("div", "", ...places.map(piece)));
    byId("words").append(box);
    for (const place of places.length ? places : [null]) {
      const row = element("tr", "");
      if (place === null || place === places[0]) {
        const split = word.words.flatMap((each, i) => (i ? [" ", own(each)] : [own(each)]));
        for (const [children, look] of [[[own(word.typed)], ""], [[own(word.cleaned)], isChanged ? "changed" : ""],
          [split, ""]]) {
          const cell = element("td", "", element("span", look, ...children));
          cell.rowSpan = places.length || 1;
          row.append(cell);
        }
      }
      const isKnown = place !== null && page.tokens[place] !== page.unknown;
      row.append(element("td", "", place === null ? "" : element("span", isKnown ? "" : "unknown", own(page.tokens[place]))));
      for (const values of [page.ids, page.segments, null]) {
        row.append(element("td", "number", place === null ? "" : String(values ? values[place] : place)));
      }
      rows.push(row);
    }
  }
  byId("stages").append(table(["typed", "cleaned", "words", "piece", "id", "segment", "position"], rows));
}

// The answer, and the guesses.

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

function cell(value) {
  const isNumber = typeof value === "number";
  const text = isNumber && !Number.isInteger(value) ? value.toFixed(3) : String(value ?? "–");
  return element("td", isNumber || value === null ? "number" : "", own(text));
}

// Several answers, such as entities: a table of the first ones.
function tableOf(values) {
  const names = Object.keys(values[0]);
  const rows = values.slice(0, most).map((each) => element("tr", "", ...names.map((name) => cell(each[name]))));
  return element("div", "wide", table(names, rows));
}

function showAnswer() {
  byId("answer").hidden = page.answer === null;
  for (const [name, value] of Object.entries(page.answer ?? {})) {
    const isBars = isObject(value) && Object.values(value).every((each) => typeof each === "number");
    const isTable = Array.isArray(value) && value.length && value.every(isObject);
    const shown = isBars
      ? element("ul", "bars", ...Object.entries(value).sort((a, b) => b[1] - a[1]).map(([key, part]) => bar([own(key)], part, part.toFixed(3))))
      : isTable ? tableOf(value)
      : element("p", "", own(typeof value === "string" ? value || "(none)" : JSON.stringify(value)));
    byId("answered").append(element("h3", "", name.replaceAll("_", " ")), shown);
  }
}

function showMasks() {
  byId("masks").hidden = !page.masks.length;
  for (const { position, layers } of page.masks) {
    const said = layers[layers.length - 1][0][0];
    const rows = layers.map((guesses, number) => element("tr", "", element("th", "", page.layers[number]),
      ...guesses.map(([token, probability]) => {
        const cell = element("td", token === said ? "guessed right" : "guessed", own(token), " ",
          element("small", "", probability.toFixed(3)));
        cell.style.setProperty("--share", probability);
        return cell;
      })));
    byId("masks").append(element("h3", "", "Position " + position),
      element("div", "card wide guesses", element("table", "", element("tbody", "", ...rows))));
  }
}

// Attention: rows of thousandths, from which token and to which.

function weights() {
  const heads = page.attention[state.layer];
  if (state.head !== "mean") return heads[state.head];
  if (!means.has(state.layer)) {
    means.set(state.layer, heads[0].map((_, place) =>
      heads.reduce((sum, head) => sum + head[place], 0) / numHeads));
  }
  return means.get(state.layer);
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// The eye tells faint ones apart so.
const shade = (thousandths) => Math.sqrt(thousandths / 1000);

function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = width + "px";
  canvas.style.height = height + "px";
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  return context;
}

function choose(values) {
  Object.assign(state, values);
  const told = { layer: state.layer, head: state.head, view: state.view };
  if (state.token !== null) told.token = state.token;
  history.replaceState(null, "", "#" + new URLSearchParams(told));
  showAttention();
}

function readAddress() {
  const told = new URLSearchParams(location.hash.slice(1));
  const number = (name, count) => {
    const value = told.get(name);
    return value !== null && /^\d+$/.test(value) && Number(value) < count ? Number(value) : null;
  };
  state.layer = number("layer", page.attention.length) ?? state.layer;
  state.head = number("head", numHeads) ?? "mean";
  state.token = number("token", size);
  state.view = told.get("view") === "map" ? "map" : "lines";
}

function step(value, by) {
  return Math.max(0, Math.min(size - 1, value === null ? (by > 0 ? 0 : size - 1) : value + by));
}

// Lines from the tokens on the left to those on the right.

const from = element("ol", "tokens from");
const to = element("ol", "tokens to");
const strands = element("canvas", "");
const lines = element("div", "lines", from, strands, to);
let hovered = null;

function makeLines() {
  from.tabIndex = 0;
  from.setAttribute("role", "listbox");
  from.setAttribute("aria-label", "From which token; Escape for all");
  to.setAttribute("aria-hidden", "true");
  strands.setAttribute("aria-hidden", "true");
  page.tokens.forEach((token, place) => {
    const item = element("li", "", own(token));
    item.id = "from" + place;
    item.setAttribute("role", "option");
    item.addEventListener("click", () => choose({ token: state.token === place ? null : place }));
    item.addEventListener("pointerenter", () => hoverLine(place));
    from.append(item);
    to.append(element("li", "", own(token)));
  });
  from.addEventListener("pointerleave", () => hoverLine(null));
  from.addEventListener("keydown", (event) => {
    const steps = { ArrowDown: 1, ArrowUp: -1, Home: -size, End: size };
    if (event.key === "Escape") choose({ token: null });
    else if (event.key in steps) choose({ token: step(state.token, steps[event.key]) });
    else return;
    event.preventDefault();
    if (state.token !== null) from.children[state.token].scrollIntoView({ block: "nearest" });
  });
}

function hoverLine(place) {
  hovered = place;
  drawLines();
}

function drawLines() {
  const shown = hovered ?? state.token;
  const matrix = weights();
  const width = Math.max(lines.clientWidth - from.offsetWidth - to.offsetWidth, 40);
  const context = prepare(strands, width, size * rowHeight);
  context.strokeStyle = colour("--accent");
  const middle = (place) => (place + 0.5) * rowHeight;
  for (let row = 0; row < size; row += 1) {
    if (shown !== null && row !== shown) continue;
    for (let column = 0; column < size; column += 1) {
      const weight = matrix[row * size + column];
      if (weight < faintest) continue;
      context.globalAlpha = shown === null ? weight / 1000 : shade(weight);
      context.lineWidth = shown === null ? 1.5 : 1 + weight / 250;
      context.beginPath();
      context.moveTo(0, middle(row));
      context.bezierCurveTo(width / 2, middle(row), width / 2, middle(column), width, middle(column));
      context.stroke();
    }
  }
  for (let place = 0; place < size; place += 1) {
    from.children[place].classList.toggle("chosen", place === shown);
    from.children[place].setAttribute("aria-selected", String(place === state.token));
    const part = shown === null ? 0 : shade(matrix[shown * size + place]);
    to.children[place].style.setProperty("--share", part.toFixed(3));
  }
  if (state.token === null) from.removeAttribute("aria-activedescendant");
  else from.setAttribute("aria-activedescendant", "from" + state.token);
}

// The heat map.

const map = element("canvas", "map");
const field = element("div", "wide", map);
let place = { left: 0, top: 0, cell: 1 };

function makeMap() {
  map.tabIndex = 0;
  map.setAttribute("role", "application");
  map.setAttribute("aria-label", "Heat map: arrow keys move, Escape shows all. What is chosen is told below.");
  map.addEventListener("pointermove", (event) => {
    const cell = cellAt(event);
    tip(cell ? told(...cell) : "", event);
  });
  map.addEventListener("pointerleave", () => tip(""));
  map.addEventListener("click", (event) => {
    const cell = cellAt(event);
    if (cell) choose({ token: cell[0], column: cell[1] });
  });
  map.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: ["token", 1], ArrowUp: ["token", -1], ArrowRight: ["column", 1], ArrowLeft: ["column", -1] };
    if (event.key === "Escape") choose({ token: null, column: null });
    else if (event.key in moves) {
      const [name, by] = moves[event.key];
      choose({ token: state.token ?? 0, [name]: step(state[name], by) });
    } else return;
    event.preventDefault();
  });
}

const told = (row, column) => heading(row) + " → " + heading(column) + "  " + share(weights()[row * size + column]);

function cellAt(event) {
  const box = map.getBoundingClientRect();
  const row = Math.floor((event.clientY - box.top - place.top) / place.cell);
  const column = Math.floor((event.clientX - box.left - place.left) / place.cell);
  return row >= 0 && column >= 0 && row < size && column < size ? [row, column] : null;
}

function shorten(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const characters = Array.from(text);
  while (characters.length && context.measureText(characters.join("") + "…").width > room) characters.pop();
  return characters.join("") + "…";
}

function drawMap() {
  const matrix = weights();
  const font = "12px system-ui, sans-serif";
  const room = 96;
  const available = field.clientWidth - room - 12;
  const cell = Math.max(14, Math.min(30, Math.floor(available / size)));
  place = { left: room, top: room, cell };
  const context = prepare(map, room + cell * size + 4, room + cell * size + 4);
  context.font = font;
  context.textBaseline = "middle";
  page.tokens.forEach((token, number) => {
    const middle = (number + 0.5) * cell;
    const label = shorten(context, token, room - 10);
    context.fillStyle = colour(number === state.token ? "--accent" : "--text");
    context.textAlign = "right";
    context.fillText(label, room - 6, room + middle);
    context.save();
    context.translate(room + middle, room - 6);
    context.rotate(-Math.PI / 2);
    context.fillStyle = colour(number === state.column ? "--accent" : "--text");
    context.textAlign = "left";
    context.fillText(label, 0, 0);
    context.restore();
  });
  context.fillStyle = colour("--accent");
  for (let row = 0; row < size; row += 1) {
    for (let column = 0; column < size; column += 1) {
      const alpha = shade(matrix[row * size + column]);
      if (!alpha) continue;
      context.globalAlpha = alpha;
      context.fillRect(room + column * cell, room + row * cell, cell - 1, cell - 1);
    }
  }
  context.globalAlpha = 1;
  context.strokeStyle = colour("--line");
  context.strokeRect(room - 1, room - 1, size * cell + 1, size * cell + 1);
  if (state.token === null) return;
  context.strokeStyle = colour("--text");
  context.strokeRect(room - 0.5, room + state.token * cell - 0.5, size * cell, cell);
  if (state.column === null) return;
  context.lineWidth = 2.5;
  context.strokeRect(room + state.column * cell - 0.5, room + state.token * cell - 0.5, cell, cell);
}

// The numbers of a token.

function list(title, values) {
  const order = Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, most);
  const rows = order.map((token) => bar(named(token), values[token] / 1000, share(values[token])));
  return element("div", "card", element("h3", "", ...title), element("ul", "bars", ...rows));
}

function showShares() {
  const { token, column } = state;
  byId("shares").replaceChildren();
  if (token === null) return;
  const matrix = weights();
  const places = Array.from(page.tokens.keys());
  if (state.view === "map" && column !== null) {
    byId("shares").append(element("p", "cell", ...named(token), " → ", ...named(column), " ",
      element("b", "", share(matrix[token * size + column]))));
  }
  byId("shares").append(element("div", "both",
    list([...named(token), " attends to"], places.map((other) => matrix[token * size + other])),
    list([...named(token), " is attended to by"], places.map((other) => matrix[other * size + token]))));
}

// All heads.

const thumbs = [];

function makeThumbs() {
  const grid = element("div", "grid");
  grid.style.setProperty("--heads", numHeads);
  grid.append(element("span", ""), ...Array.from({ length: numHeads }, (_, head) => element("span", "head", String(head))));
  page.attention.forEach((heads, layer) => {
    grid.append(element("span", "layer", String(layer)));
    thumbs.push(heads.map((_, head) => {
      const canvas = element("canvas", "");
      canvas.width = canvas.height = size;
      const button = element("button", "thumb", canvas);
      button.type = "button";
      button.setAttribute("aria-label", "Layer " + layer + ", head " + head);
      button.addEventListener("click", () => choose({ layer, head }));
      button.addEventListener("keydown", (event) => moveAmongThumbs(event, layer, head));
      grid.append(button);
      return button;
    }));
  });
  byId("heads").append(grid);
}

function moveAmongThumbs(event, layer, head) {
  const moves = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };
  if (!(event.key in moves)) return;
  const [down, right] = moves[event.key];
  const next = thumbs[layer + down]?.[head + right];
  event.preventDefault();
  if (!next) return;
  thumbs[layer][head].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

function drawThumbs() {
  const code = colour("--accent");
  const parts = [1, 3, 5].map((start) => parseInt(code.slice(start, start + 2), 16));
  thumbs.forEach((row, layer) => row.forEach((button, head) => {
    const context = button.firstChild.getContext("2d");
    const image = context.createImageData(size, size);
    page.attention[layer][head].forEach((weight, at) => {
      image.data.set([...parts, Math.round(255 * shade(weight))], 4 * at);
    });
    context.putImageData(image, 0, 0);
  }));
}

// What is chosen.

function fillChoices() {
  const { layer, head, token } = byId("form").elements;
  const option = (value, text) => {
    const made = element("option", "", text);
    made.value = value;
    return made;
  };
  layer.append(...page.attention.map((_, number) => option(number, String(number))));
  head.append(option("mean", "mean of all"), ...Array.from({ length: numHeads }, (_, number) => option(number, String(number))));
  token.append(option("", "all tokens"), ...page.tokens.map((each, number) => option(number, number + "  " + each)));
  byId("form").addEventListener("input", () => choose({
    layer: Number(layer.value),
    head: head.value === "mean" ? "mean" : Number(head.value),
    token: token.value === "" ? null : Number(token.value),
    view: byId("form").elements.view.value,
  }));
  byId("form").addEventListener("submit", (event) => event.preventDefault());
}

function showAttention() {
  const { layer, head, token, view } = byId("form").elements;
  layer.value = state.layer;
  head.value = state.head;
  token.value = state.token ?? "";
  view.value = state.view;
  lines.hidden = state.view !== "lines";
  field.hidden = !lines.hidden;
  byId("hint").textContent = lines.hidden
    ? "From the tokens on the left to those above; the stronger, the more."
    : "From the tokens on the left to those on the right; the stronger, the more. Choose one to see its own.";
  if (lines.hidden) drawMap();
  else drawLines();
  showShares();
  thumbs.forEach((row, number) => row.forEach((button, each) => {
    button.setAttribute("aria-pressed", String(number === state.layer && each === state.head));
    button.tabIndex = number === state.layer && each === (state.head === "mean" ? 0 : state.head) ? 0 : -1;
  }));
}

function showGoals() {
  const rows = page.goals.shares.map((shares, layer) => element("tr", "", element("th", "", page.layers[layer + 1]),
    ...shares.map((part) => {
      const cell = element("td", "number shaded", Math.round(100 * part) + " %");
      cell.style.setProperty("--share", part);
      return cell;
    })));
  byId("goals").append(table(["", ...page.goals.names], rows));
}

function showPage() {
  byId("title").append(...page.texts.map((text) => element("span", "", own(text))));
  if (page.is_next !== null) {
    byId("figures").append(element("div", "", element("dt", "", "the second follows the first"),
      element("dd", "", page.is_next.toFixed(4)), element("dd", "note", "the probability that the next-sentence head gives")));
  }
  for (const [name, value] of Object.entries(page.facts)) {
    byId("facts").append(element("dt", "", name), element("dd", "", String(value)));
  }
  byId("notes").append(...page.notes.map((note) => element("p", "note", note)));
  showWords();
  showAnswer();
  showMasks();
  if (!page.attention.length) {
    byId("attention").hidden = true;
    return;
  }
  byId("drawing").append(lines, field);
  makeLines();
  makeMap();
  makeThumbs();
  fillChoices();
  showGoals();
  readAddress();
  const redraw = () => {
    drawThumbs();
    showAttention();
  };
  redraw();
  window.addEventListener("resize", redraw);
  window.addEventListener("hashchange", () => {
    readAddress();
    showAttention();
  });
  matchMedia("screen and (prefers-color-scheme: dark)").addEventListener("change", redraw);
}

showPage();

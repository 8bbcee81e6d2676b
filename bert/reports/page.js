// Filters: they stand behind the # of the address, so that a link can set them.

const readFilters = () => new URLSearchParams(location.hash.slice(1));

function filterAddress(key, values) {
  const filters = readFilters();
  for (const name of Array.from(filters.keys())) {
    if (name.startsWith(key + ".")) filters.delete(name);
  }
  for (const [name, value] of Object.entries(values)) filters.set(key + "." + name, value);
  return "#" + filters.toString();
}

function goTo(key, values) {
  location.hash = filterAddress(key, values);
}

// Curves.

function niceTicks(low, high, count) {
  const raw = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw * 0.999);
  const first = Math.floor(low / step + 1e-9);
  const last = Math.max(Math.ceil(high / step - 1e-9), first + 1);
  return Array.from({ length: last - first + 1 }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

function scale(from, to, start, end) {
  const width = to - from || 1;
  return (value) => start + ((value - from) / width) * (end - start);
}

function axes(svg, place, xTicks, yTicks, x, y) {
  for (const tick of yTicks) {
    svg.append(drawn("line", { class: "grid", x1: place.left, x2: place.right, y1: y(tick), y2: y(tick) }));
    svg.append(drawn("text", { x: place.left - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick)));
  }
  for (const tick of xTicks) {
    svg.append(drawn("text", { x: x(tick), y: place.bottom + 16, "text-anchor": "middle" }, figure(tick)));
  }
}

function path(points, x, y) {
  return points.map((point, i) => (i ? "L" : "M") + x(point[0]).toFixed(1) + " " + y(point[1]).toFixed(1)).join("");
}

const lineClass = (series, number) => (series.is_reference ? "reference" : "c" + (number % 6));

function drawChart(holder, chart) {
  const width = Math.max(holder.clientWidth, 200);
  const place = { left: 46, right: width - 10, top: 22, bottom: 178 };
  const points = chart.series.flatMap((series) => series.points);
  const values = points.flatMap((point) => [point[1], point[2] ?? point[1], point[3] ?? point[1]]);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  if (low > 0 && low < high / 2) low = 0;
  const yTicks = niceTicks(low, high, 4);
  const xs = points.map((point) => point[0]);
  let [first, last] = [Math.min(...xs), Math.max(...xs)];
  // Probabilities.
  if (first >= 0 && last <= 1 && first < last) [first, last] = [0, 1];
  const xTicks = niceTicks(first, last, Math.max(2, Math.floor(width / 60)))
    .filter((tick) => (last <= 1 || Number.isInteger(tick)) && tick >= first && tick <= last);
  const x = scale(first, last, place.left + (first === last ? 20 : 0), place.right);
  const y = scale(yTicks[0], yTicks[yTicks.length - 1], place.bottom, place.top);
  const svg = drawn("svg", { viewBox: "0 0 " + width + " 216", height: 216, role: "img", tabindex: 0,
    "aria-label": chart.title + ", " + chart.x + " " + figure(first) + " to " + figure(last)
      + "; arrow keys read the values" });
  axes(svg, place, first === last ? [first] : xTicks, yTicks, x, y);
  chart.series.forEach((series, number) => {
    const group = drawn("g", { class: lineClass(series, number) });
    if (series.points.some((point) => point.length > 2)) {
      const upper = series.points.map((point) => [point[0], point[3] ?? point[1]]);
      const lower = series.points.map((point) => [point[0], point[2] ?? point[1]]).reverse();
      group.append(drawn("path", { class: "band", d: path(upper.concat(lower), x, y) + "Z" }));
    }
    group.append(drawn("path", { class: "line", d: path(series.points, x, y) }));
    if (series.points.length <= 30 && !series.is_reference) {
      for (const point of series.points) {
        group.append(drawn("circle", { class: "dot", cx: x(point[0]), cy: y(point[1]), r: 2.6 }));
      }
    }
    svg.append(group);
  });
  svg.append(drawn("text", { x: place.right, y: place.bottom + 32, "text-anchor": "end" }, chart.x + " →"));
  svg.append(drawn("text", { x: 0, y: 9 }, "↑ " + chart.y));
  hover(svg, place, chart, x);
  holder.replaceChildren(svg);
}

function nearest(points, step) {
  return points.reduce((best, point) =>
    Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best, points[0]);
}

// Shows the values at a place of the axis, which the pointer or the arrow keys choose.
function hover(svg, place, chart, x) {
  const cross = drawn("line", { class: "cross", y1: place.top, y2: place.bottom, visibility: "hidden" });
  svg.append(cross);
  const all = chart.series.flatMap((series) => series.points.map((point) => point[0]));
  const steps = Array.from(new Set(all)).sort((a, b) => a - b);
  let chosen = -1;
  function show(number, pageX, pageY) {
    chosen = Math.max(0, Math.min(steps.length - 1, number));
    const step = steps[chosen];
    cross.setAttribute("x1", x(step));
    cross.setAttribute("x2", x(step));
    cross.setAttribute("visibility", "visible");
    const lines = [chart.x + " " + figure(step)];
    for (const series of chart.series) {
      const point = nearest(series.points, step);
      const where = point[0] === step || series.is_reference ? "" : " (" + chart.x + " " + figure(point[0]) + ")";
      const range = point.length > 2 ? "  " + figure(point[2]) + " to " + figure(point[3]) : "";
      lines.push(series.name + "  " + figure(point[1]) + range + where);
    }
    tip(lines.join("\n"), pageX ?? x(step) + svg.getBoundingClientRect().left + scrollX,
      pageY ?? svg.getBoundingClientRect().top + scrollY + place.top);
  }
  function hide() {
    chosen = -1;
    cross.setAttribute("visibility", "hidden");
    byId("tip").hidden = true;
  }
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * svg.viewBox.baseVal.width;
    const distances = steps.map((step) => Math.abs(x(step) - at));
    show(distances.indexOf(Math.min(...distances)), event.pageX, event.pageY);
  });
  svg.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: chosen < 0 ? steps.length - 1 : chosen - 1, ArrowRight: chosen + 1, Home: 0, End: steps.length - 1 };
    if (event.key === "Escape") hide();
    else if (event.key in moves) show(moves[event.key]);
    else return;
    event.preventDefault();
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
}

function tip(text, pageX, pageY) {
  const shown = byId("tip");
  shown.textContent = text;
  shown.hidden = false;
  const room = document.documentElement.clientWidth - shown.offsetWidth - 8;
  shown.style.left = Math.max(4, Math.min(pageX + 14, room)) + "px";
  shown.style.top = pageY + 16 + "px";
}

function showCurves(section) {
  const holder = element("div", "charts");
  for (const chart of section.charts) {
    const caption = element("figcaption", "", element("span", "", chart.title));
    if (chart.series.length > 1) {
      chart.series.forEach((series, i) => caption.append(element("span", "key " + lineClass(series, i), series.name)));
    }
    const canvas = element("div", "");
    holder.append(element("figure", "card chart", caption, canvas));
    redraws.push(() => drawChart(canvas, chart));
  }
  return [holder];
}

// Tables, confusion matrix, scatter plot.

// Whether a column has nothing but numbers, such as "0.5 ± 0.1".
const isNumeric = (values) => values.some((value) => value !== null)
  && values.every((value) => value === null || /^-?[\d.,]+(e[-+]?\d+)?( ± [\d.]+)?$/.test(String(value)));

// Returns a function that writes the numbers of a column, all with as many digits behind the point.
function columnFigure(values) {
  const figures = values.filter((value) => typeof value === "number").map(figure);
  const digits = Math.min(4, Math.max(0, ...figures.map((each) => each.split(".")[1]?.length ?? 0)));
  const isPlain = figures.every((each) => /^-?\d*\.?\d*$/.test(each));
  return (value) => (typeof value === "number" && isPlain ? value.toFixed(digits) : figure(value));
}

function cell(value, look, write) {
  if (value !== null && typeof value === "object") {
    const link = element("a", "", value.text);
    link.href = value.target;
    return element("td", "", link);
  }
  const text = write(value);
  return element("td", look || (text.startsWith("--") ? "flag" : text.length > 20 ? "long" : ""), text);
}

function showTable(section) {
  const columns = section.columns.map((_, i) => section.rows.map((row) => row[i]));
  // A table of one column of values has values of several kinds.
  const writers = columns.map((values) => (columns.length > 2 ? columnFigure(values) : figure));
  const looks = columns.map((values) => (isNumeric(values) ? "number" : ""));
  const heads = section.columns.map((name, i) => element("th", looks[i], name));
  const rows = section.rows.map((row) =>
    element("tr", "", ...row.map((value, i) => cell(value, looks[i], writers[i]))));
  return [element("div", "card wide", element("table", "",
    element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...rows)))];
}

function showMatrix(section) {
  const corner = element("th", "", "right ↓  said →");
  const heads = section.labels.map((label) => element("th", "", label));
  const rows = section.counts.map((counts, i) => {
    const total = counts.reduce((a, b) => a + b, 0) || 1;
    const cells = counts.map((count, j) => {
      const button = element("button", i === j ? "diagonal" : "", figure(count));
      button.type = "button";
      button.disabled = !count;
      button.title = section.labels[i] + ", said to be " + section.labels[j];
      // The eye tells faint ones apart so.
      button.style.setProperty("--share", Math.sqrt(count / total));
      button.addEventListener("click", () =>
        goTo(section.examples, { right: section.labels[i], said: section.labels[j] }));
      return element("td", "", button);
    });
    return element("tr", "", element("th", "", section.labels[i]), ...cells);
  });
  return [element("div", "card wide matrix", element("table", "",
    element("thead", "", element("tr", "", corner, ...heads)), element("tbody", "", ...rows)))];
}

// What was said by what is right, or the error by what was said, where none is on the dashed line.
function drawScatter(holder, section, isError) {
  const width = Math.max(holder.clientWidth, 200);
  const height = Math.min(width, 420);
  const place = { left: 46, right: width - 10, top: 20, bottom: height - 38 };
  const points = section.points.map(([right, said, number]) =>
    ({ x: isError ? said : right, y: isError ? said - right : said, right, said, number }));
  const [xs, ys] = [points.map((point) => point.x), points.map((point) => point.y)];
  const both = isError ? [ys.concat(0), xs] : [xs.concat(ys), xs.concat(ys)];
  const [yTicks, xTicks] = both.map((values) => niceTicks(Math.min(...values), Math.max(...values), 5));
  const ends = [xTicks[0], xTicks[xTicks.length - 1]];
  const x = scale(...ends, place.left, place.right);
  const y = scale(yTicks[0], yTicks[yTicks.length - 1], place.bottom, place.top);
  const names = isError ? ["said", "error"] : ["right", "said"];
  const svg = drawn("svg", { viewBox: "0 0 " + width + " " + height, height, role: "img",
    "aria-label": section.title + ": " + names[1] + " by " + names[0] });
  axes(svg, place, xTicks, yTicks, x, y);
  const [start, end] = isError ? [0, 0] : ends;
  svg.append(drawn("text", { x: place.right, y: height - 6, "text-anchor": "end" }, names[0] + " →"));
  svg.append(drawn("text", { x: 0, y: 9 }, "↑ " + names[1]));
  for (const each of points) {
    const point = drawn("circle", { class: "point", cx: x(each.x).toFixed(1), cy: y(each.y).toFixed(1), r: 3 });
    point.addEventListener("pointermove", (event) => tip("right " + figure(each.right) + "\nsaid "
      + figure(each.said) + "\nerror " + figure(each.said - each.right), event.pageX, event.pageY));
    point.addEventListener("pointerleave", () => { byId("tip").hidden = true; });
    point.addEventListener("click", () => goTo(section.examples, { number: each.number }));
    svg.append(point);
  }
  svg.append(drawn("line", { class: "diagonal", x1: x(ends[0]), y1: y(start), x2: x(ends[1]), y2: y(end) }));
  holder.replaceChildren(svg);
}

function showScatter(section) {
  const charts = [["What was said", false], ["Errors", true]].map(([title, isError]) => {
    const canvas = element("div", "");
    redraws.push(() => drawScatter(canvas, section, isError));
    return element("figure", "card chart", element("figcaption", "", title), canvas);
  });
  return [element("div", "charts", ...charts)];
}

// Examples.

const named = (name) => (name ? element("b", "", name) : "");

function showPlaces(block) {
  const rows = block.places.map((place) => {
    const guesses = place.guesses.map((guess) => element("span", guess.is_right ? "guess right" : "guess",
      guess.text + " ", element("small", "", share(guess.probability))));
    return element("tr", "", element("td", "", place.text), element("td", "number", share(place.probability)),
      element("td", "", ...guesses, place.note ? element("span", "quiet", place.note) : ""));
  });
  const heads = ["was", "probability", "first guesses"].map((name) => element("th", "", name));
  return element("div", "wide", element("table", "places",
    element("thead", "", element("tr", "", ...heads)), element("tbody", "", ...rows)));
}

const blocks = {
  text: (block) => element("p", "text", named(block.name), block.text),
  marked: (block) => element("p", "text", named(block.name), ...block.pieces.map((piece) =>
    typeof piece === "string" ? piece
      : element("mark", piece.look, piece.text, piece.label ? element("small", "", piece.label) : ""))),
  bars: (block) => showBars(block.bars),
  places: showPlaces,
};

// All texts of an example; what its parts are told by is none.
function strings(value) {
  if (typeof value === "string") return [value];
  return value !== null && typeof value === "object"
    ? Object.entries(value).flatMap(([name, each]) => (name === "kind" || name === "look" ? [] : strings(each))) : [];
}

function showExample(example) {
  const look = example.is_right === null ? "" : example.is_right ? "right" : "wrong";
  const signs = { right: "✓ right", wrong: "✗ wrong", "": "" };
  const facts = example.facts.map((fact) => element("span", "", fact));
  return element("article", look,
    element("div", "facts", signs[look] ? element("span", "sign", signs[look]) : "", ...facts),
    ...example.blocks.map((block) => blocks[block.kind](block)));
}

function makeForm(section) {
  const form = element("form", "");
  const labels = section.labels.map((label) => [label, label]);
  if (section.examples.some((example) => example.is_right !== null)) {
    choice(form, "show", "Show", [["", "all"], ["wrong", "wrong"], ["right", "right"]]);
  }
  if (labels.length) {
    choice(form, "right", "Right", [["", "any"], ...labels]);
    choice(form, "said", "Said", [["", "any"], ...labels]);
  }
  choice(form, "order", "Order", [["", section.order + " first"], ["file", "as in the file"]]);
  searchField(form);
  const reset = element("button", "plain", "Show all");
  reset.type = "button";
  reset.addEventListener("click", () => goTo(section.key, {}));
  form.append(reset, element("span", "count"));
  form.addEventListener("submit", (event) => event.preventDefault());
  return form;
}

function chooseExamples(section, filters) {
  const get = (name) => filters.get(section.key + "." + name) ?? "";
  const wanted = get("search").toLowerCase();
  const found = section.examples.filter((example) =>
    (get("show") === "" || example.is_right === (get("show") === "right"))
    && (get("right") === "" || example.right.includes(get("right")))
    && (get("said") === "" || example.said.includes(get("said")))
    && (get("number") === "" || String(example.number) === get("number"))
    && (wanted === "" || strings(example.blocks).some((text) => text.toLowerCase().includes(wanted))));
  return get("order") === "file" ? found.sort((a, b) => a.number - b.number) : found;
}

function showExamples(section) {
  const form = makeForm(section);
  const list = element("div", "");
  const more = moreButton();
  let chosen = [];
  let shown = 0;
  function show() {
    list.append(...chosen.slice(shown, shown + atOnce).map(showExample));
    shown = Math.min(shown + atOnce, chosen.length);
    more.hidden = shown >= chosen.length;
  }
  function apply() {
    const filters = readFilters();
    for (const field of form.elements) {
      if (field.name && field !== document.activeElement) {
        field.value = filters.get(section.key + "." + field.name) ?? "";
      }
    }
    const isFiltered = Array.from(filters.keys()).some((name) => name.startsWith(section.key + "."));
    form.querySelector("button").hidden = !isFiltered;
    chosen = chooseExamples(section, filters);
    const left = section.total > section.examples.length
      ? " on this page, the first of " + figure(section.total) + " by " + section.order : "";
    form.querySelector(".count").textContent =
      figure(chosen.length) + " of " + figure(section.examples.length) + left;
    list.replaceChildren();
    shown = 0;
    show();
  }
  form.addEventListener("input", () => {
    const values = Array.from(form.elements).filter((field) => field.name && field.value);
    const address = filterAddress(section.key, Object.fromEntries(values.map((field) => [field.name, field.value])));
    history.replaceState(null, "", address === "#" ? "#all" : address);
    apply();
  });
  more.addEventListener("click", show);
  window.addEventListener("hashchange", () => {
    document.activeElement.blur();
    apply();
    if (location.hash.includes(section.key + ".")) form.scrollIntoView({ block: "start" });
  });
  apply();
  return [form, list, more];
}

// The page.

const kinds = { curves: showCurves, table: showTable, matrix: showMatrix, scatter: showScatter,
  examples: showExamples };
const redraws = [];

function showPage() {
  showHead();
  for (const section of page.sections) {
    byId("sections").append(element("section", "", element("h2", "", section.title),
      section.note ? element("p", "note", section.note) : "", ...kinds[section.kind](section)));
  }
  const redraw = () => redraws.forEach((draw) => draw());
  redraw();
  window.addEventListener("resize", redraw);
}

showPage();

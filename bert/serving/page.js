"use strict";
// All text goes onto the page as text: nothing here makes HTML of a string.
const page = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
const atMost = 50;
const answersShown = 5;
const colours = 6;

const kinds = {
  classification: `Gives ${page.fields.length > 1 ? "two texts" : "a text"} a label, or a number.`,
  question_answering: "Finds the answer to a question in a passage.",
  tagging: "Marks what a text names, or its words.",
  multiple_choice: "Chooses the ending that fits.",
  fill_mask: "Predicts the word at [MASK].",
  encoder: "Turns texts into vectors.",
};
const names = {
  text: "Text", question: "Question", endings: "Endings",
  context: page.kind === "question_answering" ? "Passage" : "Beginning",
  text_a: page.fields.length > 1 ? "First text" : "Text", text_b: "Second text",
};
const rows = { question: 2, context: page.kind === "question_answering" ? 9 : 3, text: 6, text_a: 4, text_b: 4 };

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== "" && child !== null));
  return made;
}

function button(text, action) {
  const made = element("button", "plain", text);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

const share = (probability) => probability.toFixed(3);

// The form.

function addArea(field) {
  const area = element("textarea", "");
  area.id = area.name = field.name;
  area.rows = rows[field.name];
  area.required = !field.is_optional;
  area.spellcheck = false;
  const label = element("label", "", names[field.name] + (field.is_optional ? ", if there are two" : ""));
  label.htmlFor = area.id;
  byId("fields").append(label, area);
  if (page.kind === "fill_mask" && !field.is_optional) {
    byId("fields").append(button("Insert [MASK]", () => {
      area.setRangeText("[MASK]", area.selectionStart, area.selectionEnd, "end");
      area.focus();
    }));
  }
}

function nameEntries(list) {
  Array.from(list.children).forEach((row, number) => {
    row.firstChild.setAttribute("aria-label", "Ending " + (number + 1));
    row.lastChild.setAttribute("aria-label", "Remove ending " + (number + 1));
  });
}

function addEntry(list, field, value) {
  if (list.children.length >= page.max_list) return null;
  const input = element("input", "");
  input.name = field.name;
  input.value = value;
  const row = element("div", "row", input, button("Remove", () => {
    row.remove();
    nameEntries(list);
  }));
  list.append(row);
  nameEntries(list);
  return input;
}

function addList(field) {
  const list = element("div", "");
  list.id = field.name;
  byId("fields").append(element("fieldset", "", element("legend", "", names[field.name]), list,
    button("Add an ending", () => addEntry(list, field, "")?.focus())));
  addEntry(list, field, "");
  addEntry(list, field, "");
}

function readForm() {
  const row = {};
  for (const field of page.fields) {
    if (field.is_list) {
      const values = Array.from(byId(field.name).querySelectorAll("input"), (input) => input.value);
      row[field.name] = values.filter((value) => value.trim() !== "");
    } else if (!field.is_optional || byId(field.name).value.trim() !== "") {
      row[field.name] = byId(field.name).value;
    }
  }
  return row;
}

function fillForm(values) {
  let isFilled = false;
  for (const field of page.fields) {
    const given = values.getAll(field.name);
    if (!given.length) continue;
    isFilled = true;
    if (field.is_list) {
      byId(field.name).replaceChildren();
      given.forEach((value) => addEntry(byId(field.name), field, value));
    } else {
      byId(field.name).value = given[0];
    }
  }
  return isFilled;
}

// Answers.

function bars(entries) {
  const shown = entries.slice(0, atMost).map(([name, probability, chip]) => {
    const row = element("li", chip ? "chosen" : "", element("span", "name", name),
      chip ? element("span", "chip", chip) : "", element("span", "number", share(probability)));
    row.style.setProperty("--part", probability);
    return row;
  });
  if (entries.length > atMost) shown.push(element("li", "", `and ${entries.length - atMost} more`));
  return element("ul", "bars", ...shown);
}

const byProbability = (entries) => entries.sort((one, other) => other[1] - one[1]);

// Places count characters, of which JavaScript has two for some.
function passage(text, marks) {
  const characters = Array.from(text);
  const pieces = [];
  let end = 0;
  for (const mark of marks) {
    if (mark.start < end) continue;
    pieces.push(characters.slice(end, mark.start).join(""));
    end = mark.end;
    pieces.push(element("mark", mark.look ?? "", characters.slice(mark.start, end).join(""),
      mark.label ? element("small", "", mark.label) : ""));
  }
  pieces.push(characters.slice(end).join(""));
  return element("p", "passage", ...pieces);
}

function table(heads, lines) {
  const cell = (value) => element("td", typeof value === "number" ? "number" : "",
    typeof value === "number" ? share(value) : value);
  return element("div", "wide", element("table", "",
    element("thead", "", element("tr", "", ...heads.map((head) => element("th", "", head)))),
    element("tbody", "", ...lines.map((line) => element("tr", "", ...line.map(cell))))));
}

function showClasses(answer) {
  const chosen = answer.labels ?? [answer.label];
  const entries = Object.entries(answer.probabilities)
    .map(([name, probability]) => [name, probability, chosen.includes(name) ? "chosen" : ""]);
  return [element("h2", "", chosen.length ? chosen.join(", ") : "No label"), bars(byProbability(entries))];
}

function showSpan(answer, row) {
  const found = answer.start !== null;
  const marks = found ? [{ start: answer.start, end: answer.end }] : [];
  const others = (answer.nbest ?? []).slice(0, answersShown).map((each) =>
    [each.answer || "no answer", each.probability, each.start === answer.start && each.end === answer.end ? "chosen" : ""]);
  return [element("h2", "", answer.answer || "No answer in the passage"), passage(row.context, marks),
    others.length ? element("h3", "", "Likeliest answers") : "", others.length ? bars(others) : ""];
}

function showMarks(row, found, name) {
  const types = Array.from(new Set(found.map((each) => each[name] ?? "")));
  const marks = found.map((each) => ({ start: each.start, end: each.end, label: each[name] ?? "",
    look: "c" + (types.indexOf(each[name] ?? "") % colours) }));
  const heads = ["Text", name === "type" ? "Type" : "Tag", "Score"];
  return [element("h2", "", found.length ? "" : "Nothing is marked"), passage(row.text, marks),
    table(found.length ? heads : [], found.map((each) => [each.text, each[name] ?? "", each.score ?? ""]))];
}

function showChoice(answer, row) {
  const entries = row.endings.map((ending, number) =>
    [ending, answer.probabilities[number], number === answer.label ? "chosen" : ""]);
  return [element("h2", "", answer.ending), bars(entries)];
}

function showMasks(answer, row) {
  const pieces = [row.text_a, row.text_b ?? ""].join(" ").split("[MASK]");
  const first = element("p", "passage", pieces[0], ...pieces.slice(1).flatMap((piece, number) =>
    [element("mark", "", answer.masks[number][0].token), piece]));
  const lists = answer.masks.flatMap((guesses, number) => [
    answer.masks.length > 1 ? element("h3", "", `[MASK] ${number + 1}`) : "",
    bars(guesses.map((guess, place) => [guess.token, guess.probability, place ? "" : "likeliest"]))]);
  return [first, ...lists];
}

function showVector(answer) {
  return [element("h2", "", `A vector of ${answer.vector.length} numbers`),
    element("p", "quiet", answer.vector.slice(0, 12).map((each) => each.toFixed(4)).join("  ") + " …")];
}

function show(answer, row) {
  if ("masks" in answer) return showMasks(answer, row);
  if ("answer" in answer) return showSpan(answer, row);
  if ("entities" in answer) return showMarks(row, answer.entities, "type");
  if ("words" in answer) return showMarks(row, answer.words, "tag");
  if ("ending" in answer) return showChoice(answer, row);
  if ("probabilities" in answer) return showClasses(answer);
  if ("vector" in answer) return showVector(answer);
  return [element("h2", "", String(Number(answer.score.toPrecision(5))))];
}

// Asking.

const quote = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

function tell(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = problem === "";
}

async function ask(row) {
  // Beside the page, whatever a proxy has put before its address.
  const path = `v1/models/${encodeURIComponent(page.name)}:predict`;
  const address = new URL(path, location.href.split(/[?#]/)[0]);
  const body = JSON.stringify({ instances: [row] });
  const begun = performance.now();
  const response = await fetch(address, { method: "POST", body });
  const text = await response.text();
  let answered = {};
  try {
    answered = JSON.parse(text);
  } catch {
    answered = { error: `The server answered ${response.status} ${response.statusText}` };
  }
  byId("request").textContent = `curl -d ${quote(body)} ${address}`;
  byId("response").textContent = JSON.stringify(answered, null, 2);
  byId("exchange").hidden = false;
  if (!answered.predictions) throw new Error(answered.error);
  const seconds = (performance.now() - begun) / 1000;
  byId("answer").replaceChildren(element("article", "", ...show(answered.predictions[0], row),
    element("p", "quiet", `answered in ${seconds.toFixed(3)} s`)));
}

async function submit() {
  const row = readForm();
  const values = Object.entries(row).flatMap(([name, value]) => [value].flat().map((each) => [name, each]));
  history.replaceState(null, "", "#" + new URLSearchParams(values));
  byId("ask").disabled = true;
  tell("");
  try {
    await ask(row);
  } catch (error) {
    byId("answer").replaceChildren();
    tell(error instanceof TypeError ? "The server cannot be reached." : error.message);
  }
  byId("ask").disabled = false;
}

function begin() {
  byId("title").textContent = page.name;
  byId("kind").textContent = `${kinds[page.kind] ?? ""} Version ${page.version}.`;
  page.fields.forEach((field) => (field.is_list ? addList(field) : addArea(field)));
  byId("form").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  byId("form").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("form").requestSubmit();
  });
  if (fillForm(new URLSearchParams(location.hash.slice(1)))) submit();
}

begin();

"use strict";
// All text goes onto the page as text: nothing here makes HTML of a string.
const page = JSON.parse(document.getElementById("content").textContent);
const byId = (id) => document.getElementById(id);
const atOnce = 25;
const svgNames = "http://www.w3.org/2000/svg";

function element(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== "" && child !== null));
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(svgNames, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function figure(value) {
  if (value === null) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) {
    return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  return String(Number(value.toPrecision(4)));
}

const share = (probability) => probability.toFixed(3);

function showBars(bars) {
  return element("ul", "bars", ...bars.map((bar) => {
    const chips = [bar.is_said ? "said" : "", bar.is_right ? "right" : ""].filter(Boolean);
    const row = element("li", chips.join(" "), element("span", "name", bar.text),
      chips.length ? element("span", "chip", chips.join(" and ")) : "",
      element("span", "number", share(bar.probability)));
    row.style.setProperty("--part", bar.probability);
    return row;
  }));
}

function choice(form, name, title, options) {
  const select = element("select", "", ...options.map(([value, text]) => {
    const option = element("option", "", text);
    option.value = value;
    return option;
  }));
  select.name = name;
  form.append(element("label", "", title, select));
}

function searchField(form) {
  const search = element("input", "");
  search.type = "search";
  search.name = "search";
  search.size = 14;
  form.append(element("label", "", "Containing", search));
}

function moreButton() {
  const more = element("button", "plain more", "More");
  more.type = "button";
  return more;
}

function showHead() {
  byId("title").textContent = page.title;
  byId("subtitle").textContent = page.subtitle;
  byId("subtitle").hidden = !page.subtitle;
  for (const each of page.figures) {
    byId("figures").append(element("div", "", element("dt", "", each.name),
      element("dd", "", figure(each.value)), each.note ? element("dd", "note", each.note) : ""));
  }
  for (const [name, value] of Object.entries(page.facts)) {
    byId("facts").append(element("dt", "", name), element("dd", "", figure(value)));
  }
  byId("settings").hidden = !Object.keys(page.facts).length;
}

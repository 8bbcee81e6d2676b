// The answers to questions, in their paragraphs. Offsets count characters as Python does.

const judged = (row) => row.exact !== undefined;
const answer = (text) => text || "(no answer)";
const kinds = {
  "": () => true,
  wrong: (row) => judged(row) && row.f1 === 0 && !row.exact,
  partly: (row) => judged(row) && row.f1 > 0 && !row.exact,
  right: (row) => judged(row) && row.exact > 0,
  null: (row) => row.text === "",
};
const orders = {
  "": (a, b) => (b.loss ?? -1) - (a.loss ?? -1),
  f1: (a, b) => (a.f1 ?? 2) - (b.f1 ?? 2),
  probability: (a, b) => a.probability - b.probability,
  file: () => 0,
};

function showParagraph(row) {
  const paragraph = element("p", "text paragraph");
  const characters = Array.from(page.contexts[row.context]);
  const spans = (row.gold_spans ?? []).map((span) => ["gold", span]);
  if (row.span) spans.push([!judged(row) || row.exact ? "right" : "wrong", row.span]);
  const ends = new Set([0, characters.length, ...spans.flatMap((each) => each[1])]);
  const places = Array.from(ends).sort((a, b) => a - b);
  for (let i = 0; i + 1 < places.length; i++) {
    const text = characters.slice(places[i], places[i + 1]).join("");
    const covers = ([, [start, end]]) => start <= places[i] && places[i + 1] <= end;
    const looks = new Set(spans.filter(covers).map((each) => each[0]));
    paragraph.append(looks.size ? element("mark", Array.from(looks).join(" "), text) : text);
  }
  return paragraph;
}

function showQuestion(row) {
  const look = !judged(row) ? "" : row.exact ? "right" : "wrong";
  const sign = { right: "✓ right", wrong: row.f1 > 0 ? "✗ partly right" : "✗ wrong", "": "" }[look];
  const facts = ["probability " + share(row.probability)];
  if (judged(row)) facts.unshift("loss " + row.loss.toFixed(3), "F1 " + row.f1.toFixed(3));
  if (row.null_odds !== undefined) facts.push("null odds " + row.null_odds.toFixed(2));
  const golds = row.golds ?? [];
  const bars = row.nbest.map(([text, probability, isSaid, isRight]) =>
    ({ text: answer(text), probability, is_said: isSaid, is_right: isRight }));
  return element("article", look,
    element("div", "facts", sign ? element("span", "sign", sign) : "",
      ...facts.concat(row.id).map((fact) => element("span", "", fact))),
    element("p", "text question", row.question), showParagraph(row),
    element("p", "text", element("b", "", "said"), answer(row.text)),
    judged(row) ? element("p", "text", element("b", "", "right"), answer(golds.join(" | "))) : "",
    element("details", "", element("summary", "", "Best answers"), showBars(bars)));
}

// What is marked in a long paragraph is seen at once.
function scrollToMark(article) {
  const paragraph = article.querySelector(".paragraph");
  const mark = paragraph.querySelector("mark");
  if (mark) paragraph.scrollTop = mark.offsetTop + mark.offsetHeight * 3 - paragraph.clientHeight;
}

function showQuestions() {
  showHead();
  const form = element("form", "");
  choice(form, "show", "Show", [["", "all"], ["wrong", "wrong"], ["partly", "partly right"],
    ["right", "right"], ["null", "said to have no answer"]]);
  choice(form, "order", "Order", [["", "greatest loss first"], ["f1", "least F1 first"],
    ["probability", "least probability first"], ["file", "as in the file"]]);
  searchField(form);
  const count = element("span", "count");
  const list = element("div", "");
  const more = moreButton();
  form.append(count);
  let chosen = [];
  let shown = 0;
  function show() {
    const added = chosen.slice(shown, shown + atOnce).map(showQuestion);
    list.append(...added);
    added.forEach(scrollToMark);
    shown = Math.min(shown + atOnce, chosen.length);
    more.hidden = shown >= chosen.length;
  }
  function choose() {
    const wanted = form.elements.search.value.toLowerCase();
    const texts = (row) => [row.id, row.question, row.text, page.contexts[row.context]];
    chosen = page.questions.filter(kinds[form.elements.show.value])
      .filter((row) => texts(row).some((text) => text.toLowerCase().includes(wanted)))
      .sort(orders[form.elements.order.value]);
    const left = page.total > page.questions.length
      ? " on this page, those with the greatest loss of " + figure(page.total) : "";
    count.textContent = figure(chosen.length) + " of " + figure(page.questions.length) + left;
    list.replaceChildren();
    shown = 0;
    show();
  }
  form.addEventListener("input", choose);
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", show);
  byId("sections").append(element("section", "", element("h2", "", "Questions"),
    element("p", "note", page.note), form, list, more));
  choose();
}

showQuestions();

// The analyst's view: the question box, and what is public.

import { draw, marginal, series } from "./charts.js";
import { complete, constants, literal, quoted } from "./completion.js";
import { answerBar, empty, fill, h, how, plural, scrolling, share, spendingBar, table, tick, when, whole, $ } from "./dom.js";
import { chosen, follow, keepDataset, send } from "./live.js";
import { sharedParts } from "./parts.js";
import { linkTo, showStanding } from "./tiles.js";

const MOST_BARS = 40;
const MOST_ROWS = 500;
const MOST_LINES = 6;
const MOST_ASKED = 50;
const MOST_CHIPS = 60;
const LENGTH = /^[1-9][0-9]{0,3} (hour|day|week|month)s?$/;
const LENGTHS = ["1 day", "7 days", "28 days"];
const COMPARED = { category: "=", number: ">=", boolean: "IS", date: ">=" };

const parts = sharedParts();
const asked = [];
let [schema, phases, dated] = [null, 0, false];
let me = ""; // the analyst in whose name this page asks
let wanted = new URLSearchParams(location.search);

// ---------------------------------------------------------------- completion

let [options, active, from] = [[], -1, 0];

function showHints() {
  fill(
    $("hints"),
    options.map((option, index) =>
      h("span", { role: "option", id: `hint-${index}`, class: "code", "aria-selected": String(index === active), onmousedown: (event) => { event.preventDefault(); take(option); } }, option),
    ),
  );
  if (active >= 0) {
    $("question").setAttribute("aria-activedescendant", `hint-${active}`);
    $("hints").children[active]?.scrollIntoView({ block: "nearest" });
  } else $("question").removeAttribute("aria-activedescendant");
}

function suggest() {
  const box = $("question");
  const found = complete(box.value.slice(0, box.selectionStart), schema?.attributes ?? [], schema?.kinds ?? []);
  [options, from, active] = [found.options, found.from, -1];
  showHints();
}

function insert(text, start, end) {
  const box = $("question");
  const before = box.value.slice(0, start);
  const spaced = `${before && !/[\s(]$/.test(before) ? " " : ""}${text}${text.endsWith("(") ? "" : " "}`;
  box.focus();
  box.setRangeText(spaced, start, end, "end");
  suggest();
}

const take = (option) => insert(option, from, $("question").selectionStart);

$("question").addEventListener("input", () => { mark(false); suggest(); });
$("question").addEventListener("click", suggest);
$("question").addEventListener("focus", suggest);
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    $("box").requestSubmit();
  } else if (event.key === "ArrowDown" && options.length && !event.shiftKey) {
    event.preventDefault();
    active = (active + 1) % options.length;
    showHints();
  } else if (event.key === "ArrowUp" && active >= 0) {
    event.preventDefault();
    active -= 1;
    showHints();
  } else if (event.key === "Enter" && active >= 0) {
    event.preventDefault();
    take(options[active]);
  } else if (event.key === "Escape") {
    [options, active] = [[], -1];
    showHints();
  }
});

// ---------------------------------------------------------------- asking

function mark(wrong) {
  if (wrong) $("question").setAttribute("aria-invalid", "true");
  else $("question").removeAttribute("aria-invalid");
}

function say(wrong, ...words) {
  $("says").className = `says ${wrong ? "wrong" : ""}`;
  fill($("says"), ...words);
}

/** Words for what went wrong, with the line that it is about. An answer to another question is put away. */
function complain(error) {
  $("answer-card").hidden = true;
  const line = error.line === undefined ? null : $("question").value.split("\n")[error.line - 1];
  mark(true);
  say(true, h("span", {}, error.message), line ? h("pre", { "aria-hidden": "true" }, `${line}\n${" ".repeat(error.column - 1)}^`) : null);
}

function request() {
  const last = $("window").value;
  const window = !last ? {} : { window: /^[0-9]+$/.test(last) ? { last_phases: Number(last) } : { last } };
  const periods = $("series").value;
  return { dataset: schema.name, sql: $("question").value.trim() || null, ...window, ...(periods ? { series: periods } : {}) };
}

/** What is left of the analyst's own share and of the whole, as bars of what is spent. */
function shareBars({ yours, spent, left: whole } = {}) {
  if (!yours) return null;
  const could = yours.spent + yours.left;
  const line = (name, part, rest) => [h("dt", {}, name), h("dd", {}, spendingBar(part)), h("dd", { class: "number" }, `${share(rest)} left`)];
  return h("dl", { class: "bars" }, line("Yours", yours.left ? yours.spent / could : 1, yours.left), line("In all", spent, whole));
}

async function busily(work) {
  const buttons = [$("ask"), $("price"), $("stand")];
  if (!schema) {
    say(true, "There is no data set yet.");
    return;
  }
  for (const button of buttons) button.disabled = true;
  try {
    await work();
  } finally {
    for (const button of buttons) button.disabled = false;
  }
}

async function showPrice() {
  const quote = await send("/question", { ...request(), quote: true });
  if (quote.error) complain(quote.error);
  else if (quote.refused) complain({ message: `It would be refused: ${quote.refused}` });
  else say(false, h("p", {}, `It ${quote.said}.`), (quote.notes ?? []).map((note) => h("p", { class: "hint" }, note)), shareBars(quote.budget));
}

async function ask() {
  const question = request();
  say(false, "Asking…");
  const answer = await send("/question", question);
  if (answer.error) {
    complain(answer.error);
    return;
  }
  mark(false);
  say(false, answer.refused ? "Refused." : "Answered.");
  const entry = { question, answer, at: Date.now() };
  asked.unshift(entry);
  asked.length = Math.min(asked.length, MOST_ASKED);
  showAnswer(entry);
  showHistory();
}

/** Asks the question in each phase from now on, as a tile of the name that was written. */
async function stand() {
  const query_id = $("name").value.trim();
  if (!/^[\x21-\x7e]{1,100}$/.test(query_id)) {
    say(true, "Write a name for the tile first: letters, digits and signs, without blanks.");
    $("name").focus();
    return;
  }
  say(false, "Asking…");
  const reply = await send("/question", { ...request(), query_id, standing: true });
  if (reply.error) {
    complain(reply.error);
    return;
  }
  mark(false);
  $("name").value = "";
  say(false, `${query_id} is answered in each phase from now on.`);
}

/** Ends a tile that was begun on a page. */
async function end(tile) {
  const reply = await send("/question", { dataset: schema.name, query_id: tile.query_id, standing: false });
  say(Boolean(reply.error), reply.error ? reply.error.message : `${tile.query_id} is asked no more. Its answers stay.`);
}

$("stand").addEventListener("click", () => busily(stand));

$("box").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!$("ask").disabled) busily(ask);
});
$("price").addEventListener("click", () => busily(showPrice));

// ---------------------------------------------------------------- answers

const words = (question) => question.sql ?? "every row";

/** The rows of a view: what names each, and the number that is drawn with its words. */
function drawn(view) {
  const main = view.columns.findLastIndex(([head]) => head === view.main[0]);
  const labels = view.columns.map(([, unit], index) => (unit === "label" ? index : -1)).filter((index) => index >= 0);
  return view.rows.map((row) => ({ ...row, said: row.texts[main], labels: labels.map((index) => row.texts[index]) }));
}

/** A picture of the rows; of many the largest. */
function drawBars(place, view) {
  const [head] = view.main;
  const known = drawn(view).filter((row) => row.value !== null);
  if (!known.length) return;
  const largest = known.length > MOST_BARS ? known.toSorted((a, b) => b.value - a.value).slice(0, MOST_BARS) : known;
  const of = known.length > MOST_BARS ? `: the ${MOST_BARS} largest of ${whole(known.length)}` : "";
  const by = view.columns.filter(([, kind]) => kind === "label").map(([name]) => name);
  const chart = h("div", { class: "chart" });
  place.append(h("h3", {}, `${head[0].toUpperCase()}${head.slice(1)} by ${by.join(" and ")}${of}`), chart);
  draw(chart, marginal(largest.map((row) => [row.labels.join(" · "), row.value, row.bar, row.said])));
}

/** One picture for each cell of a series, for the largest ones of many. */
function drawSeries(place, view) {
  const periods = [...new Set(view.rows.map((row) => row.texts[0]))];
  const cells = new Map();
  for (const { labels: [period, ...cell], value, bar, said } of drawn(view)) {
    if (value === null) continue;
    const name = cell.join(" · ");
    cells.set(name, (cells.get(name) ?? new Map()).set(period, [value, bar, said]));
  }
  const most = ([, points]) => Math.max(...[...points.values()].map(([value]) => value));
  const shown = cells.size > MOST_LINES ? [...cells].sort((a, b) => most(b) - most(a)).slice(0, MOST_LINES) : [...cells];
  for (const [name, points] of shown) {
    const chart = h("div", { class: "chart" });
    place.append(name ? h("h3", {}, name) : "", chart);
    draw(chart, series(periods.map((period) => [period.split(" until ")[0], ...(points.get(period) ?? [null, null])]), tick(view.main[1])));
  }
  if (shown.length < cells.size) place.append(empty(`The ${shown.length} largest of ${plural(cells.size, "cell")} are drawn.`));
}

/** A table of the texts of a view. */
function tableOf(view) {
  const kind = (unit) => (unit === "label" || unit === "bins" ? "words" : "number");
  const cells = (row) => (row.refused ? [h("td", {}, row.texts[0]), h("td", { colspan: view.columns.length - 1, class: "refused" }, `refused: ${row.refused}`)] : row.texts.map((text, index) => h(index ? "td" : "th", { class: kind(view.columns[index][1]), scope: index ? null : "row" }, text)));
  const shown = view.rows.slice(0, MOST_ROWS);
  return [
    scrolling("The answer as a table", table("The answer as a table", view.columns.map(([head, unit]) => [head, kind(unit) === "words" ? "" : "number"]), shown.map((row) => h("tr", {}, cells(row))))),
    view.n_rows > shown.length ? empty(`${whole(view.n_rows - shown.length)} more rows`) : null,
  ];
}

/** An answer as its view says it; stream-dp ask prints the same. */
function drawView(place, view) {
  const pictured = view.main && ["share", "number", "points"].includes(view.main[1]);
  if (!view.is_table) {
    place.append(h("p", { class: "figure" }, view.figure));
    if (pictured && view.main[1] === "share" && view.rows[0].value !== null) place.append(answerBar(view.rows[0].value, view.rows[0].bar));
    place.append(...view.sentences.map((sentence) => h("p", {}, sentence)));
  } else if (!view.rows.length) place.append(empty("no group surely has rows"));
  else {
    if (pictured) (view.by_period ? drawSeries : drawBars)(place, view);
    const whole = tableOf(view).filter(Boolean);
    place.append(...(pictured ? [h("details", { open: view.columns.length > 3 }, h("summary", {}, "As a table"), whole)] : whole));
  }
  place.append(h("p", { class: "how" }, view.how ? how(view.how) : null, [view.costs, view.use, view.sure].filter(Boolean).map((fact) => h("span", {}, fact))));
  place.append(...[...view.remarks, ...view.notes].map((note) => h("p", { class: "hint" }, note)));
}

function showAnswer({ question, answer }) {
  const place = h("div", { class: "answer" });
  place.append(h("p", { class: "question code" }, words(question)));
  if (answer.refused) place.append(h("p", { class: "refused" }, `Refused: ${answer.refused}`));
  else drawView(place, answer);
  place.append(h("p", {}, h("a", { href: linkTo(question.dataset, question.sql, question.window?.last_phases ?? question.window?.last, question.series) }, "Link to this question")));
  $("answer-card").hidden = false;
  $("answer").replaceChildren(...place.childNodes);
}

/** An answer in a few words. */
const inShort = ({ refused, figure, n_rows: n }) => (refused ? h("span", { class: "refused" }, `refused: ${refused}`) : h("span", {}, figure || plural(n, "row")));

function showHistory() {
  $("history-card").hidden = false;
  fill(
    $("history"),
    scrolling("Asked on this page", table(
      "Asked on this page, newest first",
      [["time", "tight roomy"], ["question", "half"], ["answer", ""], ["how", "tight roomy"]],
      asked.map((entry, index) =>
        h(
          "tr",
          {},
          h("td", { class: "tight roomy muted" }, when(entry.at)),
          h("td", { class: "words" }, h("button", { class: "code", type: "button", title: "Show it again", "data-key": `asked-${asked.length - index}`, onclick: () => again(entry) }, words(entry.question))),
          h("td", { class: "words" }, inShort(entry.answer)),
          h("td", { class: "tight roomy" }, entry.answer.how ? how(entry.answer.how) : ""),
        ),
      ),
    )),
  );
}

function again(entry) {
  $("question").value = entry.question.sql ?? "";
  $("window").value = entry.question.window?.last_phases ?? entry.question.window?.last ?? "";
  $("series").value = entry.question.series ?? "";
  showAnswer(entry);
  $("answer-card").scrollIntoView({ block: "nearest" });
}

// ---------------------------------------------------------------- what can be asked

function chips(attribute) {
  const name = quoted(attribute.name);
  const put = (text) => () => insert(text, $("question").selectionStart, $("question").selectionEnd);
  if (attribute.type === "category") {
    const all = attribute.values.slice(0, MOST_CHIPS).map((value) => h("button", { class: "chip", type: "button", onclick: put(`${name} = ${literal(value)}`) }, value));
    return attribute.values.length > MOST_CHIPS ? [...all, h("span", { class: "hint" }, `and ${attribute.values.length - MOST_CHIPS} more`)] : all;
  }
  if (attribute.type === "number") return constants(attribute).map((edge) => h("button", { class: "chip", type: "button", onclick: put(`${name} >= ${edge}`) }, `≥ ${edge}`));
  if (attribute.type === "date") {
    const all = constants(attribute);
    const shown = all.slice(0, MOST_CHIPS).map((period) => h("button", { class: "chip", type: "button", onclick: put(`${name} = ${period}`) }, period.slice(1, -1)));
    return all.length > MOST_CHIPS ? [...shown, h("span", { class: "hint" }, `and later ones`)] : shown;
  }
  return ["TRUE", "FALSE"].map((value) => h("button", { class: "chip", type: "button", onclick: put(`${name} IS ${value}`) }, value));
}

function showSchema() {
  fill(
    $("schema"),
    schema?.attributes.map((attribute) =>
      h(
        "div",
        { class: "attribute" },
        h("button", { class: "chip name", type: "button", onclick: () => insert(quoted(attribute.name), $("question").selectionStart, $("question").selectionEnd) }, attribute.name),
        h("span", { class: "hint" }, ` ${attribute.type}${attribute.by ? ` by ${attribute.by}` : ""}${attribute.missing ? ", may be missing" : ""}`),
        h("div", {}, chips(attribute)),
      ),
    ) ?? [],
  );
  const first = schema?.attributes[0];
  if (first) $("question").placeholder = `${quoted(first.name)} ${COMPARED[first.type]} ${constants(first)[0]}`;
}

function showPhases() {
  const kept = $("window").value;
  const choices = [1, 2, 3, 6, 12, 24].filter((last) => last < phases);
  fill($("window"), h("option", { value: "" }, "all"), choices.map((last) => h("option", { value: last }, last === 1 ? "the latest" : `the latest ${last}`)), dated ? LENGTHS.map((last) => h("option", { value: last }, `the last ${last}`)) : []);
  $("window").value = choices.includes(Number(kept)) || (dated && LENGTHS.includes(kept)) ? kept : "";
}

$("dataset").addEventListener("change", () => { location.search = `?dataset=${encodeURIComponent($("dataset").value)}`; });

/** Puts the question of the address into the box, once. Nobody asks it until somebody presses the button. */
function takeLink() {
  if (!wanted || wanted.get("q") === null || !schema || (wanted.get("last") && !phases)) return;
  $("question").value = wanted.get("q");
  const last = wanted.get("last");
  if (last && (Number(last) > 0 || LENGTH.test(last))) {
    const words = LENGTH.test(last) ? `the last ${last}` : `the latest ${Number(last)}`;
    if (![...$("window").options].some((one) => one.value === last)) $("window").append(h("option", { value: last }, words));
    $("window").value = last;
  }
  const periods = wanted.get("series");
  if ([...$("series").options].some((one) => one.value === periods)) $("series").value = periods;
  wanted = null;
}

follow("analyst", {
  ...parts,
  tiles(tiles) { showStanding(schema?.name ?? chosen, tiles, me, end); },
  reading({ role, analyst }) {
    me = analyst;
    $("overview").hidden = role !== "operator";
  },
  datasets(datasets) {
    const live = datasets.filter((one) => one.state !== "retired");
    if (live.map((one) => one.name).join() === [...$("dataset").options].map((one) => one.value).join()) return;
    fill($("dataset"), live.map((one) => h("option", { value: one.name, selected: one.name === (schema?.name ?? chosen) }, one.name)));
  },
  schema(now) {
    schema = now;
    parts.schema(now);
    showSchema();
    if (!now) return;
    keepDataset(now.name);
    $("dataset").value = now.name;
    takeLink();
  },
  dataset(dataset) {
    parts.dataset(dataset);
    if ((dataset?.phases ?? 0) === phases) return;
    phases = dataset?.phases ?? 0;
    dated = Boolean(dataset?.every);
    showPhases();
    takeLink();
  },
});

// The analyst's view: the question box, and what is public.

import { draw, marginal, series } from "./charts.js";
import { complete, constants, literal, quoted } from "./completion.js";
import { answerBar, empty, fill, h, how, left, measured, plural, scrolling, share, spendingBar, table, when, whole, why, $ } from "./dom.js";
import { chosen, follow, keepDataset, send } from "./live.js";
import { alsoMeasured, dates, figure, moment, priceOf, sharedParts } from "./parts.js";
import { linkTo, showStanding } from "./tiles.js";

const MOST_BARS = 40;
const MOST_ROWS = 500;
const READ_EACH = 50;
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
function shareBars({ yours, spent, left: whole }) {
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
  else if (quote.free) say(false, h("p", {}, "It would be free: it follows from public facts alone."));
  else if (quote.status === "refused") complain({ message: `It would be refused: ${why(quote.reason)}` });
  else if (quote.queries.every((one) => !one.privacy_loss)) complain({ message: `It would be refused: ${why(quote.queries[0].reason)}` });
  else say(false, h("p", {}, `${priceOf(quote)}; ${left(quote.budget)}${alsoMeasured(quote)}.`), quote.queries.length === 1 && quote.queries[0].note ? h("p", { class: "hint" }, quote.queries[0].note) : null, shareBars(quote.budget));
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
  say(false, answer.status === "refused" ? "Refused." : "Answered.");
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

function windowOf(answer) {
  if (!answer.window) return "";
  const [first, last] = answer.window;
  return `${first === last ? `phase ${first}` : `phases ${first} to ${last}`}${dates(answer)}`;
}

function cost(answer) {
  const paid = answer.privacy_loss?.share;
  const rest = answer.budget ? `, ${left(answer.budget)}` : "";
  return `${paid ? `cost ${share(paid)} of a phase's budget` : "free"}${rest}${alsoMeasured(answer)}`;
}

const USES = { yes: "precise enough", rough: "rough", no: "not precise enough to use" };
/** What to ask for more, in the words of SQL. */
const inSql = (said) => said.replace(/: name at_most ([0-9.]+)/g, (_, most) => `: add COSTING AT MOST ${Number((100 * most).toPrecision(3))}%`);
const use = (answer) => (USES[answer.useful] ? `${USES[answer.useful]}${answer.suggestion ? `: ${inSql(answer.suggestion)}` : ""}` : "");

const confidence = (answer) => (answer.confidence ? `each error bar covers the true value with probability ${answer.confidence}, if you asked before you saw it${answer.error_bar_anytime ? `; ± ${share(answer.error_bar_anytime)} if earlier answers made you ask` : ""}` : "");

const labelsOf = (found) => found.labels.reduce((heads, tails) => heads.flatMap((head) => tails.map((tail) => [...head, tail])), [[]]);

function cellsOf(found) {
  return labelsOf(found).map((label, index) => ({ index, label, value: found.values[index], error: found.error_bars[index], count: found.counts[index], countBar: found.count_bars?.[index], mean: found.means?.[index], meanBar: found.mean_bars?.[index] }));
}

/** The cells that people see: of very many, those that surely have rows. */
function toSee(found, cells) {
  const bars = found.wider === undefined ? found.error_bars_simultaneous : found.count_bars ?? found.error_bars;
  const size = (cell) => (found.wider === undefined || !found.count_bars ? cell.value : cell.count);
  if (cells.length <= READ_EACH || !bars?.length) return cells;
  return cells.filter((cell) => bars[cell.index] !== null && size(cell) > (found.wider ?? 1) * bars[cell.index]);
}

/** Title and drawing of the shares of a table; of many cells the largest. */
function sharesOf(found, cells) {
  const by = found.attributes.join(" and ");
  const shares = (some) => marginal(some.map((cell) => [cell.label.join(" · "), cell.value, cell.error]), share);
  if (cells.length <= MOST_BARS) return [`Share by ${by}`, shares(cells)];
  const largest = cells.toSorted((a, b) => b.value - a.value).slice(0, MOST_BARS);
  return [`Share by ${by}: the ${MOST_BARS} largest of ${whole(cells.length)}`, shares(largest)];
}

/** Title and drawing of the means of a table; of its shares if no mean is known. */
function meansOf(found, cells) {
  const known = cells.filter((cell) => cell.mean !== null);
  if (!known.length) return sharesOf(found, cells);
  const where = known.length < cells.length ? ", where it is known" : "";
  const first = known.length > MOST_BARS ? `: the first ${MOST_BARS} of ${whole(known.length)}` : "";
  const means = known.slice(0, MOST_BARS).map((cell) => [cell.label.join(" · "), cell.mean, cell.meanBar]);
  return [`Mean by ${found.attributes.join(" and ")}${where}${first}`, marginal(means, measured)];
}

/** A count of rows and its half width, where that is known. */
const figures = (rows, bar) => `${whole(rows)}${bar === undefined || bar === null ? "" : ` ± ${whole(Math.round(bar))}`}`;

/** From where to where a number may be, in place of a bar that reaches beyond what is possible; or else nothing. */
const possible = (value, bar, low, high, show, slack = 1e-6 * bar) => ([value, bar, low, high].some((one) => one === undefined || one === null) || (value - bar >= low - slack && value + bar <= high + slack) ? null : `${show(low)} to ${show(high)}`);

/** What people read of a count that is surely lower than the least that they may read; or else nothing. */
const few = (high, least) => (least !== undefined && least !== null && high !== undefined && high !== null && high < least ? `fewer than ${whole(least)}` : null);

/** The fewest and the most rows of a cell. */
const spread = (found, row) => (found.lows ? `${whole(found.lows[row])} to ${whole(found.highs[row])}` : "–");

/** A table as a drawing, and as a table with a column for each sum. */
function drawTable(place, found, cells, [title, picture], sums, least, valued = "") {
  const chart = h("div", { class: "chart" });
  place.append(
    h("h3", {}, title),
    chart,
    h(
      "details",
      { open: sums.length > 0 },
      h("summary", {}, "As a table"),
      scrolling("Cells of the answer", table(
        "Cells of the answer",
        [...found.attributes.map((name) => [name, ""]), [`share${valued}`, "number"], ["± error", "number"], [`rows${valued}`, "number roomy"], ["from, to", "number roomy"], ...sums.map(([name]) => [name, "number"])],
        cells.slice(0, MOST_ROWS).map(({ index: row, ...cell }) =>
          h("tr", {}, cell.label.map((label, index) => h(index ? "td" : "th", index ? {} : { scope: "row" }, label)), (few(found.highs?.[row], least) ? ["–", "–", few(found.highs[row], least), "–"] : [share(cell.value), cell.error === null ? "–" : share(cell.error), figures(cell.count, cell.countBar), spread(found, row)]).map((said, at) => h("td", { class: at < 2 ? "number" : "number roomy" }, said)), sums.map(([, values, bars, shown, lows, highs]) => h("td", { class: "number" }, possible(values[row], bars[row], lows?.[row], highs?.[row], (end) => shown(end)) ?? shown(values[row], bars[row])))),
        ),
      )),
      cells.length > MOST_ROWS ? empty(`${whole(cells.length - MOST_ROWS)} more cells`) : null,
    ),
  );
  draw(chart, picture);
}

/** Of how many rows: of those that count, where a person is protected. */
const ofRows = (answer) => (answer.counted === undefined ? plural(answer.n, "row") : `the ${figures(answer.counted, answer.counted_bar)} rows that count, of ${plural(answer.n, "row")}`);
const counted = (answer, rows, bar) => `${figures(rows, bar)} of ${ofRows(answer)}`;

/** How many rows do not count, where a person is protected. */
const surplus = (answer) => (answer.surplus_at_most === undefined ? "" : `at most ${share(answer.surplus_at_most)} of the ${plural(answer.n, "row")} do not count, and a count among all rows may be larger by as many`);

/** A share of the rows, and the rows that it stands for. */
function drawShare(place, answer, properties, before) {
  const error = answer.error_bar;
  const small = few(answer.high, answer.least_cell);
  if (small !== null) return place.append(h("p", properties, `${before}${small} rows`));
  const rows = answer.count_bar ?? (error === undefined || answer.counted !== undefined ? undefined : error * answer.n);
  const ends = possible(answer.count, rows, answer.low, answer.high, whole, 1);
  place.append(
    h("p", properties, share(answer.value), error === undefined ? null : h("small", {}, ` ± ${share(error)}`)),
    answerBar(answer.value, error),
    h("p", {}, `${before}${ends === null ? counted(answer, answer.count, rows) : `${ends} of ${ofRows(answer)}`}`),
  );
}

function countAnswer(place, question, answer) {
  drawShare(place, answer, { class: "figure" }, "");
}

function sumAnswer(place, question, answer) {
  const mean = possible(answer.mean, answer.mean_bar, answer.mean_low, answer.mean_high, measured) ?? measured(answer.mean, answer.mean_bar);
  const sum = possible(answer.total, answer.total_bar, answer.total_low, answer.total_high, measured) ?? measured(answer.total, answer.total_bar);
  place.append(h("p", { class: "figure" }, mean, h("small", {}, " on average")), h("p", {}, `sum ${sum}`));
  drawShare(place, answer, {}, "rows with a value: ");
  if (answer.rows !== undefined) place.append(h("p", {}, `all rows of the condition: ${counted(answer, answer.rows, answer.rows_bar)}`));
}

const shareWithBar = (value, bar) => (value === undefined || value === null ? "not known" : `${share(value)}${bar === undefined || bar === null ? "" : ` ± ${share(bar)}`}`);

function shareAnswer(place, question, answer) {
  const bar = answer.share_bar;
  place.append(h("p", { class: "figure" }, answer.share === undefined ? "not known" : share(answer.share), bar === undefined ? null : h("small", {}, ` ± ${share(bar)}`)));
  if (answer.share !== undefined) place.append(answerBar(answer.share, bar));
  drawShare(place, answer, {}, "of the rows of the condition: ");
}

function correlationAnswer(place, question, answer) {
  place.append(h("p", { class: "figure" }, possible(answer.value, answer.error_bar, answer.value_low, answer.value_high, measured) ?? measured(answer.value, answer.error_bar)));
  place.append(h("p", {}, `correlation of ${answer.attribute} and ${answer.other}`));
}

function tableAnswer(place, question, { table: found, counted: among, least_cell: least }) {
  const cells = toSee(found, cellsOf(found));
  if (!cells.length) place.append(empty("no group surely has rows"));
  else drawTable(place, found, cells, sharesOf(found, cells.filter((cell) => !few(found.highs?.[cell.index], least))), [], least, among === undefined ? "" : " (of those that count)");
}

function sumByGroupAnswer(place, question, { table: found, least_cell: least }) {
  const cells = cellsOf(found);
  const sums = [["sum", found.totals, found.total_bars, measured, found.total_lows, found.total_highs], ["mean", found.means, found.mean_bars, measured, found.mean_lows, found.mean_highs]];
  if (found.rows) sums.push(["all rows", found.rows, found.rows_bars, figures]);
  drawTable(place, found, cells, meansOf(found, cells), sums, least, " with a value");
}

function shareByGroupAnswer(place, question, { table: found, least_cell: least }) {
  const cells = cellsOf(found);
  const known = cells.map((cell, index) => ({ ...cell, value: found.shares[index], error: found.share_bars[index] })).filter((cell) => cell.value !== null);
  drawTable(place, found, cells, sharesOf(found, known.length ? known : cells), [["share of them", found.shares, found.share_bars, shareWithBar, found.share_lows, found.share_highs]], least, " of the condition");
}

function foundAnswer(place, question, answer) {
  const rank = answer.error_bar ? ` ± ${share(answer.error_bar)} of the rows` : "";
  if (answer.found) place.append(h("p", { class: "figure" }, answer.found.label, h("small", {}, rank)));
  else place.append(h("p", {}, "No answer: a few rows could change it, so naming it could reveal something about them."));
}

const binsOf = (bins, found) => (bins ? `${bins.label}${found && found.label !== bins.label ? `, likely in ${found.label}` : ""}` : "any bin");

function quantileAnswer(place, question, answer) {
  const rank = answer.error_bar === undefined ? "" : ` rank ± ${share(answer.error_bar)}`;
  place.append(h("p", { class: "figure" }, binsOf(answer.lies_in, answer.found), h("small", {}, rank)));
}

function quantileByGroupAnswer(place, question, { table: found }) {
  const cells = labelsOf(found);
  place.append(
    scrolling("The bins of each group", table(
      "The bins of each group",
      [...found.attributes.map((name) => [name, ""]), ["rows", "number"], ["lies in", ""], ["rank ± error", "number"]],
      cells.slice(0, MOST_ROWS).map((label, index) =>
        h("tr", {}, label.map((value) => h("th", { scope: "row" }, value)), h("td", { class: "number" }, whole(found.counts[index])), h("td", {}, binsOf(found.lies_in[index], found.found[index])), h("td", { class: "number" }, found.error_bars[index] === null ? "–" : share(found.error_bars[index]))),
      ),
    )),
    cells.length > MOST_ROWS ? empty(`${whole(cells.length - MOST_ROWS)} more cells`) : "",
  );
}

/** The values of one part of a series, by their cells: [cell, value, error]. */
function valuesOf(answer) {
  if (answer.status === "refused") return [];
  const found = answer.table;
  if (answer.kind === "quantile") return [["", binsOf(answer.lies_in), answer.error_bar ?? null]];
  if (answer.kind === "quantile_by_group") return labelsOf(found).map((label, index) => [label.join(" · "), binsOf(found.lies_in[index]), found.error_bars[index]]);
  if (!found) return [["", ...valueOf(answer.kind, answer)]];
  const cells = cellsOf(found);
  const values = { sum_by_group: [found.means, found.mean_bars], share_by_group: [found.shares, found.share_bars] }[answer.kind] ?? [found.values, found.error_bars];
  return cells.map((cell, index) => [cell.label.join(" · "), values[0][index], values[1][index]]);
}

const valueOf = (kind, answer) => ({ sum: [answer.mean, answer.mean_bar], share: [answer.share, answer.share_bar] }[kind] ?? [answer.value, answer.error_bar]).map((value) => value ?? null);

const periodOf = (part) => (part.since ? moment(part.since) : null) ?? (part.window[0] === part.window[1] ? `${part.window[0]}` : `${part.window[0]}–${part.window[1]}`);

/** One picture for each cell of a series, for the largest ones of many, and all values as a table. */
function seriesAnswer(place, question, answer) {
  const parts = answer.parts.map((part) => ({ part, values: new Map(valuesOf(part.answer).map(([cell, ...value]) => [cell, value])) }));
  const cells = [...new Set(parts.flatMap(({ values }) => [...values.keys()]))];
  const bins = answer.parts.some(({ answer: one }) => one.kind?.startsWith("quantile"));
  const sayError = answer.parts.some(({ answer: one }) => one.kind?.startsWith("sum")) ? (value) => measured(value) : share;
  const say = bins ? (value) => value : sayError;
  const most = (cell) => Math.max(...parts.map(({ values }) => values.get(cell)?.[0] ?? -Infinity));
  const shown = cells.length > MOST_LINES ? cells.toSorted((a, b) => most(b) - most(a)).slice(0, MOST_LINES) : cells;
  for (const cell of bins ? [] : shown) {
    const points = parts.map(({ part, values }) => [periodOf(part), ...(values.get(cell) ?? [null, null])]);
    if (cell) place.append(h("h3", {}, cell));
    const chart = h("div", { class: "chart" });
    place.append(chart);
    if (points.some(([, value]) => value !== null)) draw(chart, series(points, say));
    else chart.append(empty("No value of it is known."));
  }
  if (!bins && shown.length < cells.length) place.append(empty(`The ${shown.length} largest of ${plural(cells.length, "cell")} are drawn.`));
  const lines = parts.flatMap(({ part, values }) => (part.answer.status === "refused" ? [[part, "", null, null]] : cells.map((cell) => [part, cell, ...(values.get(cell) ?? [null, null])])));
  place.append(
    h(
      "details",
      bins ? { open: "" } : {},
      h("summary", {}, "As a table"),
      scrolling("Parts of the series", table(
        "Parts of the series",
        [["since", ""], ["until", ""], cells.length > 1 ? ["cell", ""] : null, ["value", "number"], ["± error", "number"]].filter(Boolean),
        lines.slice(0, MOST_ROWS).map(([part, cell, value, error]) =>
          h("tr", {}, h("th", { scope: "row" }, periodOf(part)), h("td", {}, moment(part.until ?? "")), cells.length > 1 ? h("td", {}, cell) : null, h("td", { class: "number" }, part.answer.status === "refused" ? `refused: ${why(part.answer.reason)}` : value === null ? "–" : say(value)), h("td", { class: "number" }, error === null ? "–" : sayError(error))),
        ),
      )),
      lines.length > MOST_ROWS ? empty(`${whole(lines.length - MOST_ROWS)} more values`) : null,
    ),
  );
}

// One function for each kind of answer that can be asked in SQL; stream-dp ask prints the others.
const DRAWINGS = {
  predicate: countAnswer,
  table: tableAnswer,
  sum: sumAnswer,
  sum_by_group: sumByGroupAnswer,
  share: shareAnswer,
  share_by_group: shareByGroupAnswer,
  series: seriesAnswer,
  correlation: correlationAnswer,
  quantile: quantileAnswer,
  quantile_by_group: quantileByGroupAnswer,
  median: foundAnswer,
  mode: foundAnswer,
};

const otherAnswer = (place) => place.append(h("p", {}, "This page cannot draw this answer. Use stream-dp ask to print it."));

/** The table of a statement: each value with its half width, or from where to where it may be. */
function statementTable(place, { columns, rows, phases, notes, cost: paid, least_cell: least }) {
  const shown = columns.map((column, index) => ({ column, index, bar: columns.findIndex((other) => other.bar_of === column.name), ends: columns.flatMap((other, at) => (other.end_of === column.name ? [at] : [])) })).filter(({ column }) => column.bar_of === null && column.end_of === null);
  const said = (value, { column, bar, ends: [low, high] }, row) => {
    if (value === null) return bar < 0 ? "missing" : "unknown";
    if (typeof value !== "number" || bar < 0) return String(value);
    if (column.type === "integer" && few(row[high], least)) return few(row[high], least);
    const [show, slack] = column.type === "integer" ? [figures, 1] : [measured, 1e-6 * row[bar]];
    return possible(value, row[bar], row[low], row[high], (end) => show(end), slack) ?? show(value, row[bar]);
  };
  place.append(
    scrolling("Table of the statement", table(
      "Table of the statement",
      shown.map(({ column, bar }) => [column.name, bar < 0 ? "" : "number"]),
      rows.slice(0, MOST_ROWS).map((row) => h("tr", {}, shown.map((one) => h("td", { class: one.bar < 0 ? "words" : "number" }, said(row[one.index], one, row))))),
    )),
  );
  if (rows.length > MOST_ROWS) place.append(empty(`${whole(rows.length - MOST_ROWS)} more rows`));
  const about = !phases ? "" : phases[0] === phases[1] ? `phase ${phases[0]}` : `phases ${phases[0]} to ${phases[1]}`;
  place.append(h("p", { class: "how" }, h("span", {}, paid ? `cost ${share(paid)} of a phase's budget` : "free"), h("span", {}, about)));
  for (const note of notes) place.append(h("p", { class: "hint" }, note));
}

function showAnswer({ question, answer }) {
  const place = h("div", { class: "answer" });
  place.append(h("p", { class: "question code" }, words(question)));
  if (answer.columns) statementTable(place, answer);
  else if (answer.status === "refused") place.append(h("p", { class: "refused" }, `Refused: ${why(answer.reason)}`));
  else {
    (DRAWINGS[answer.kind] ?? otherAnswer)(place, question, answer);
    place.append(h("p", { class: "how" }, how(answer), h("span", {}, cost(answer)), h("span", {}, use(answer)), h("span", {}, windowOf(answer)), h("span", {}, confidence(answer))));
    if (answer.counted !== undefined) place.append(h("p", { class: "hint" }, `${answer.table ? `shares and rows are of ${ofRows(answer)}; ` : ""}${surplus(answer)}`));
    if (answer.note) place.append(h("p", { class: "hint" }, answer.note));
  }
  place.append(h("p", {}, h("a", { href: linkTo(question.dataset, question.sql, question.window?.last_phases ?? question.window?.last, question.series) }, "Link to this question")));
  $("answer-card").hidden = false;
  $("answer").replaceChildren(...place.childNodes);
}

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
          h("td", { class: "words" }, figure(entry.answer)),
          h("td", { class: "tight roomy" }, entry.answer.difficulty ? how(entry.answer) : ""),
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

// Standing queries and running totals as tiles: what is newest, and what was before.

import { draw, marginal, series } from "./charts.js";
import { fill, h, how, plural, scrolling, share, table, tick, when, $ } from "./dom.js";

const MOST_COLUMNS = 4;

/** The address of this page with a question in its box. Nobody asks it until somebody presses the button. */
export function linkTo(dataset, sql, last, series) {
  const parameters = new URLSearchParams({ dataset, q: sql ?? "", ...(last ? { last } : {}), ...(series ? { series } : {}) });
  return `/ask?${parameters}`;
}

const ALERTS = (alert) => (alert ? `alert when the whole bar is ${alert.above === undefined || alert.above === null ? `below ${alert.below}` : `above ${alert.above}`}` : "");

/** A field of a file of comma-separated values. A spreadsheet must not take a label for a formula, see client/tables.py. */
function csvField(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = typeof value === "string" && /^(?![+-]([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$)[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The answers of a tile as comma-separated values: a line for each phase, or for each cell of it. */
export function csvOf(tile) {
  const newest = tile.history.at(-1);
  const start = (one) => [one.phase, new Date(one.at).toISOString()];
  const end = (one) => [one.cost, one.path, one.refused];
  const lines = tile.history.flatMap((one) => {
    const cells = one === newest && tile.cells.length ? tile.cells : one.cells;
    return cells ? cells.map((cell) => [...start(one), ...cell.slice(0, 3), ...end(one)]) : [[...start(one), "", one.value, one.error_bar, ...end(one)]];
  });
  return [["phase", "answered", "cell", "value", "error_bar", "cost", "path", "refused"], ...lines].map((line) => line.map(csvField).join(",")).join("\r\n") + "\r\n";
}

function download(tile) {
  const address = URL.createObjectURL(new Blob([csvOf(tile)], { type: "text/csv" }));
  h("a", { href: address, download: `${tile.query_id.replace(/[^\w.-]/g, "_")}.csv` }).click();
  URL.revokeObjectURL(address);
}

function picture(tile) {
  const newest = tile.history.at(-1);
  if (!newest) return [h("p", { class: "empty" }, "The first answer comes with the next phase.")];
  if (newest.refused) return [h("p", { class: "refused" }, `Refused for ${newest.named}: ${newest.refused}`), ...past(tile)];
  if (tile.cells.length) return [cellsOf(tile), earlier(tile)];
  if (newest.value === undefined) return [h("p", { class: "hint" }, "Published answers show this answer; a tile cannot draw it.")];
  return [h("p", { class: "figure" }, newest.said), ...past(tile)];
}

const drawing = (make) => {
  const chart = h("div", { class: "chart" });
  draw(chart, make);
  return chart;
};

/** The cells of a table, of which a tile has the first ones. */
function cellsOf({ cells, in_all: all }) {
  return [drawing(marginal(cells)), all > cells.length ? h("p", { class: "hint" }, `the first ${cells.length} of ${plural(all, "cell")}`) : null];
}

/** The answers of the phases so far, if there are at least two. */
function past(tile) {
  const points = tile.history.map((one) => [one.short, one.value ?? null, one.error_bar ?? null, one.said]);
  const unit = tile.history.findLast((one) => one.value !== undefined)?.unit;
  if (points.filter(([, value]) => value !== null).length < 2) return [];
  return [drawing(series(points, tick(unit)))];
}

/** The first cells of a table in the phases so far, newest first, if there are at least two. */
function earlier(tile) {
  const phases = tile.history.filter((one) => one.cells).reverse();
  if (phases.length < 2) return null;
  const names = phases[0].cells.slice(0, MOST_COLUMNS).map(([name]) => name);
  const row = (one) => h("tr", {}, h("th", { scope: "row" }, one.short), names.map((_, index) => h("td", { class: "number" }, one.cells[index]?.[3] ?? "–")));
  const caption = `${tile.query_id}, phase by phase`;
  return h("details", {}, h("summary", {}, "Phase by phase"), scrolling(caption, table(caption, [["phase", ""], ...names.map((name) => [name, "number"])], phases.map(row))));
}

function costs(tile) {
  const spent = tile.history.reduce((sum, one) => sum + (one.cost ?? 0), 0);
  const paid = tile.history.filter((one) => one.cost).length;
  const next = tile.next_loss === null ? "" : tile.next_loss ? `the next answer costs about ${share(tile.next_loss)} of a phase's budget` : "the next answer is free, if it goes like the newest";
  const past = tile.history.length ? (paid ? `${paid} of ${plural(tile.history.length, "answer")} cost ${share(spent)} together` : `${plural(tile.history.length, "answer")} so far, free`) : "";
  return [past, next].filter(Boolean).join("; ");
}

/** Draws the tiles; `end(tile)` ends one of them, if the page asks in the name of its analyst, `me`. */
export function showStanding(dataset, tiles, me, end) {
  $("standing-card").hidden = !tiles.length;
  fill(
    $("standing"),
    tiles.map((tile) => {
      const newest = tile.history.at(-1);
      const name = `${tile.analyst} ${tile.query_id}`;
      return h(
        "article",
        { class: "tile", "aria-label": tile.query_id },
        h("h3", {}, tile.query_id),
        h("p", { class: "code" }, tile.words),
        picture(tile),
        newest ? h("p", { class: "how" }, newest.difficulty ? how([newest.difficulty, newest.path]) : null, h("span", {}, `${newest.named}, `, when(newest.at))) : null,
        h("p", { class: "hint" }, [costs(tile), ALERTS(tile.alert)].filter(Boolean).join("; ")),
        h(
          "div",
          { class: "row" },
          tile.sql === null ? null : h("a", { class: "button slight", href: linkTo(dataset, tile.sql, tile.last, tile.series), "data-key": `link ${name}` }, "Open the question"),
          newest ? h("button", { class: "button slight", type: "button", "data-key": `csv ${name}`, onclick: () => download(tile) }, "CSV") : null,
          tile.analyst === me ? h("button", { class: "button slight", type: "button", "data-key": `end ${name}`, onclick: () => end(tile) }, "End") : h("span", { class: "hint" }, `by ${tile.analyst}`),
        ),
      );
    }),
  );
}

/** How the cells of a running total grew, tick by tick, if there are at least two ticks. */
function courses({ courses }) {
  if (courses[0].points.length < 2) return null;
  const charts = courses.map(({ name, points }) => [name ? h("p", { class: "hint" }, name) : null, drawing(series(points, tick(), true))]);
  return courses[0].name ? h("details", {}, h("summary", {}, "Tick by tick"), charts) : charts;
}

/** Draws the running totals of the period that is open, if there are any. */
export function showRunning(period) {
  $("running-card").hidden = !period;
  if (!period) return;
  $("running-hint").textContent = `Of the period that is open: ${plural(period.rows, "row")} had come by ${period.until}. Each error bar holds by itself, and a band at all ticks at once.`;
  fill(
    $("running"),
    period.tiles.map((tile) =>
      h("article", { class: "tile", "aria-label": tile.title }, h("h3", {}, tile.title), tile.cells[0][0] ? cellsOf(tile) : h("p", { class: "figure" }, tile.cells[0][3]), courses(tile)),
    ),
  );
}

// Parts that both views have.

import { answerBar, empty, fill, h, how, measured, percent, pill, plural, scrolling, share, signed, spendingBar, table, when, whole, why, $ } from "./dom.js";
import { draw, easyByPhase, overTime, undraw } from "./charts.js";

const STATES = { retired: "retired: its rows are erased", quarantined: "in quarantine", stopped: "stopped: nobody can serve it" };

/** The name of the data set and what it promises. */
function showHead(schema, state) {
  const promise = schema?.privacy
    ? `ε ${schema.privacy.epsilon}${schema.privacy.delta ? ` at δ ${schema.privacy.delta}` : ""} is promised to ${schema.promised_to}; ${schema.precision}; profile ${schema.profile}${kept(schema.kept_phases)}${stored(schema.kept_answers_days)}`
    : "";
  fill($("head"), schema ? [h("h1", {}, schema.name), STATES[state] ? pill(STATES[state], "bad") : null, h("p", {}, promise), schema.counting ? h("p", {}, `A person: ${schema.counting}.`) : null, schema.opening ? h("p", {}, opens(schema.opening, schema.counting)) : null] : h("h1", {}, "No data set yet"));
}

/** How long rows are kept, where some are erased. */
function kept(phases) {
  return phases ? `; the rows of ${phases === 1 ? "the newest phase" : `the last ${whole(phases)} phases`} are kept, older ones are erased` : "";
}

/** How long answers are stored, where that is not for ever. */
function stored(days) {
  return days ? `; answers and outcomes of batches are stored for ${whole(days)} to ${whole(2 * days)} days` : "";
}

/** What opening a phase spends, and what is free from then on. */
function opens({ least, most, ever, certifies, poor_rows: poor }, counting) {
  const rows = poor ? ` Synthetic rows are poor, because little is published about ${poor}; a larger mechanism.base_share publishes more.` : "";
  const range = share(least) === share(most) ? share(least) : `${share(least)} to ${share(most)}`;
  const more = share(ever) === share(most) ? "" : `. No phase spends more than ${share(ever)} unasked, even if far more is asked than expected`;
  if (!ever) return `Opening a phase spends nothing; each new query pays for itself.${rows}`;
  const free = certifies.length ? ` Free from then on: ${certifies.join("; ")}.` : "";
  return `Opening a phase spends ${range} of its budget${counting ? ", if all of its rows count" : ""}${more}.${free}${rows}`;
}

// The kinds whose error bars the definition's accuracy promises.
const PROMISED = ["predicate", "table"];

const tile = (name, figure, ...more) => h("div", {}, h("dt", {}, name), h("dd", {}, figure, h("small", {}, ...more)));

/** The largest loss so far, as an epsilon at the promised delta. */
function spentSoFar(dataset, schema) {
  if (dataset.epsilon === null) return "in the phase spent most";
  const most = `ε ${dataset.epsilon.toPrecision(2)} of ${schema?.privacy?.epsilon ?? ""}`;
  if (dataset.in_every_phase === null) return `${most}, in the phase spent most`;
  return `${most}, if all phases spend as the one spent most; ε ${dataset.in_every_phase.toPrecision(2)} for a person with as many rows as count in every phase so far`;
}

/** The figures of the chosen data set at a glance. */
function showTiles(dataset, schema, answers) {
  const tiles = $("tiles");
  tiles.hidden = !dataset;
  if (!dataset) return;
  const asked = dataset.easy + dataset.hard;
  const bars = answers.filter((answer) => PROMISED.includes(answer.kind)).map((answer) => answer.error_bar).filter((bar) => bar !== undefined && bar !== null).sort((a, b) => a - b);
  fill(
    tiles,
    tile("Phases open", whole(dataset.phases), plural(dataset.rows, "row")),
    tile(
      "Next phase",
      dataset.waiting === null || !dataset.opens_at ? "–" : share(Math.min(1, dataset.waiting / dataset.opens_at), 0),
      dataset.opens_at ? `${whole(dataset.waiting ?? 0)} of ${whole(dataset.opens_at)} rows wait${dataset.every ? `; a phase opens when a period of ${dataset.every} ends` : ""}` : "",
    ),
    tile("Budget spent", share(dataset.spent), `${spentSoFar(dataset, schema)}; ${plural(dataset.looks, "look")}`),
    tile("Easy answers", asked ? share(dataset.easy / asked, 0) : "–", `of ${whole(asked)} lately${dataset.refused ? `; ${whole(dataset.refused)} refused` : ""}`),
    tile(
      "Error bar",
      bars.length ? `± ${share(bars[Math.floor(bars.length / 2)])}` : "–",
      // Where a person is protected, the promise is about counts, and these are bars of shares of the rows that count.
      !schema?.accuracy ? "" : schema.counting || schema.accuracy.aim ? "median of the latest" : `median of the latest; at most ${percent(schema.accuracy.error)} promised`,
    ),
  );
}

/** Spending of each phase, and its course. */
function showBudget(dataset) {
  const phases = dataset?.phase_list ?? [];
  if (!phases.length) {
    fill($("budget"), empty("No phase is open yet, so nothing is spent."));
  } else {
    const hidden = phases[0].phase - 1;
    const dated = Boolean(dataset.every);
    fill(
      $("budget"),
      scrolling(
        "Budget by phase",
        table(
          "Spent share of the budget of each phase",
          [["phase", "tight"], [dated ? "since" : "opened", "tight roomy"], ["rows", "number tight"], ["spent", "broad"], ["", "number tight"], ["looks", "number tight roomy"]],
          phases.map((phase) =>
            h(
              "tr",
              {},
              h("th", { scope: "row", class: "tight" }, phase.phase),
              h("td", { class: "tight roomy muted", title: dated ? `opened ${when(phase.opened).textContent ?? ""}${dates(phase)}` : null }, dated ? moment(phase.since ?? "") : when(phase.opened)),
              h("td", { class: "number tight" }, whole(phase.rows)),
              h("td", { class: "broad" }, spendingBar(phase.spent)),
              h("td", { class: "number tight" }, share(phase.spent)),
              h("td", { class: "number tight roomy" }, whole(phase.looks)),
            ),
          ),
        ),
      ),
      hidden ? empty(`${plural(hidden, "earlier phase")} not shown`) : null,
    );
  }
  const time = $("time");
  if (time) {
    if (dataset?.spending.length) draw(time, overTime(dataset.spending, phases));
    else undraw(time, empty("Nothing is spent yet."));
  }
  if (phases.some((phase) => phase.easy + phase.hard)) draw($("easy"), easyByPhase(phases));
  else undraw($("easy"), empty("No answers yet."));
}

const known = new Set();

const withBar = (shown, error) => [shown, h("span", { class: "muted" }, error === undefined || error === null ? "" : ` ± ${share(error)}`)];
const counted = (answer) => withBar(h("strong", {}, share(answer.value)), answer.error_bar);
const cells = (answer) => {
  const error = answer.error_bar ?? answer.error_bar_simultaneous;
  return `${plural(answer.cells ?? (answer.table ?? answer.batch).values.length, "cell")}${error === undefined || error === null ? "" : ` ± ${share(error)}`}`;
};
const found = (answer) => answer.found?.label ?? "none that may be named";
const bins = (answer) => (answer.lies_in ?? answer.found)?.label ?? "any bin";
const quantiles = (answer) => plural(answer.cells ?? answer.table.found.length, "cell");
const side = (answer) => answer.side;

// One function for each kind of answer. A list has the size of a table, and the page that asked has the table.
const FIGURES = {
  predicate: counted,
  threshold: counted,
  adaptive_threshold: counted,
  table: cells,
  threshold_curve: cells,
  sum_by_group: cells,
  share_by_group: cells,
  difference_by_group: cells,
  difference: (answer) => withBar(h("strong", {}, signed(answer.value)), answer.error_bar),
  correlation: (answer) => measured(answer.value, answer.error_bar),
  prefix_batch: cells,
  series: (answer) => `${plural(answer.parts.length ?? answer.parts, "part")} by ${answer.series}`,
  sum: (answer) => `mean ${measured(answer.mean, answer.mean_bar)}`,
  share: (answer) => (answer.share === undefined || answer.share === null ? "not known" : withBar(h("strong", {}, share(answer.share)), answer.share_bar)),
  quantile: bins,
  quantile_by_group: quantiles,
  median: found,
  mode: found,
  between: side,
  interior_point: side,
};

/** Whether a query of a quote would be refused, or answered without a look that it would need. */
const cannotBeHad = ({ privacy_loss, path }) => !privacy_loss || (path === "unverified" && !privacy_loss.share);

/** What the data set measures more because of an answer or a quote. */
export const alsoMeasured = ({ owner_pays: also }) => (also ? `; also: the data set measures more (${share(also.share)}, the owner pays)` : "");

/** What the queries of a quote would cost together. */
export function priceOf({ together: { low, high, most }, blocks, queries }) {
  const without = queries.filter(cannotBeHad).length;
  const part = without === queries.length ? "It cannot be had: no look that it may pay for is precise enough" : without ? `; ${without} of its ${queries.length} queries cannot be had` : "";
  if (without === queries.length) return part;
  if (!high) return `It would be free${part}`;
  const range = share(low) === share(high) ? share(high) : `${share(low)} to ${share(high)}`;
  const [one] = queries.length === 1 ? queries : [{}];
  const bar = one.error_bar === undefined ? "" : `, for ${one.expected ? "about " : ""}± ${Number((100 * one.error_bar).toPrecision(2))}% of the ${one.kind?.startsWith("sum") ? "largest possible sum" : "rows"}`;
  return `It would cost ${most === undefined ? "" : "about "}${range}${most === undefined ? "" : ` and ${share(most)} at most`} of the budget of ${blocks === 1 ? "a phase" : `each of ${blocks} phases`}${bar}${part}`;
}

/** An answer in a few words. */
export function figure(answer) {
  if (answer.columns) return h("span", {}, plural(answer.rows.length, "row"));
  if (answer.status === "refused") return h("span", { class: "refused" }, `refused: ${why(answer.reason)}`);
  return h("span", {}, (FIGURES[answer.kind] ?? (() => "another kind"))(answer));
}

/** The latest answers, newest first; with the questions where those are known. */
function showAnswers(answers) {
  const questions = answers.some((answer) => answer.question) ? answers.map((answer) => answer.question ?? "") : null;
  const first = known.size === 0;
  const rows = answers.map((answer, index) => {
    const name = `${answer.analyst} ${answer.query_id}`;
    const fresh = !known.has(name) && !first;
    known.add(name);
    const bar = answer.value === undefined ? null : answerBar(answer.value, answer.error_bar);
    const refused = answer.status === "refused";
    const cost = answer.privacy_loss?.share;
    return h(
      "tr",
      { class: fresh ? "fresh" : "" },
      h("td", { class: "tight roomy muted" }, when(answer.at)),
      h("td", { class: "tight roomy", title: answer.query_id }, answer.analyst.slice(0, 24)),
      questions ? h("td", { class: "words code" }, questions[index] ?? "") : null,
      h("td", { class: refused ? "words" : "tight", colspan: refused ? 4 : null }, figure(answer)),
      refused ? null : [
        h("td", { class: questions ? "narrow roomy" : "broad roomy" }, bar),
        h("td", { class: "tight" }, answer.difficulty ? how(answer) : ""),
        h("td", { class: "number tight roomy" }, cost ? share(cost) : "free"),
      ],
    );
  });
  $("answers").classList.toggle("asked", Boolean(questions));
  if (!rows.length) fill($("answers"), empty("No answers yet."));
  else
    fill(
      $("answers"),
      scrolling(
        "Latest answers",
        table(
          "The latest answers, newest first",
          [["time", "tight roomy"], ["analyst", "tight roomy"], questions ? ["question", ""] : null, ["answer", "tight"], ["", questions ? "narrow roomy" : "broad roomy"], ["how", "tight"], ["cost", "number tight roomy"]].filter(Boolean),
          rows,
        ),
      ),
    );
}

/** The stretch of time that some phases cover, where it is known. */
export const dates = ({ since, until }) => (since && until ? `, from ${moment(since)} until ${moment(until)}` : "");

/** A date or a time as in messages, but without seconds. */
export const moment = (time) => (time.length <= "2026-11-01T06:00+01:00".length ? time : time.slice(0, 16).replace("T", " "));

const EVENTS = {
  dataset_accepted: (event) => (event.note ? `data set accepted; ${event.note}` : "data set accepted"),
  dataset_retired: () => "data set retired: its rows are erased",
  batch_accepted: (event) => `${plural(event.rows, "row")} taken in (batch ${event.batch_id}); ${whole(event.waiting)} wait`,
  batch_refused: (event) => `batch ${event.batch_id} refused`,
  phase_opened: (event) => `phase ${event.phase} opened with ${plural(event.rows, "row")}${dates(event)}${event.late_batches ? `; ${whole(event.late_batches)} late ${event.late_batches === 1 ? "batch" : "batches"}` : ""}`,
  phase_closed: (event) => `the period of phase ${event.phase} was closed`,
  quarantined: () => "in quarantine",
  stopped: () => "stopped",
  repaired: () => "served again",
  rows_lost: () => "goes on without rows that are lost",
  written_off: () => "goes on; its rows up to then are written off",
  analysts_changed: () => "other shares are allowed to analysts from now on",
  alert: (event) => `alert: ${event.query_id}${event.cells ? ` (${event.cells.slice(0, 3).join("; ")}${event.cells.length > 3 ? " and more" : ""})` : ""}, since phase ${event.since_phase}`,
};

function showEvents(events) {
  const lines = events.map((event) => {
    const words = EVENTS[event.event]?.(event) ?? event.event;
    return h("li", {}, when(event.at), h("span", {}, event.reason ? `${words}: ${event.reason.message}` : words));
  });
  fill($("events"), lines.length ? h("ul", { class: "log" }, lines) : empty("Nothing has happened lately."));
}

/** What is shown of several documents at once, as they come in. */
export function sharedParts() {
  const now = { dataset: null, schema: null, answers: [] };
  const tiles = () => showTiles(now.dataset, now.schema, now.answers);
  const head = () => { showHead(now.schema, now.dataset?.state); tiles(); };
  return {
    schema(schema) { now.schema = schema; head(); },
    dataset(dataset) { now.dataset = dataset; showBudget(dataset); head(); },
    answers(answers) { now.answers = answers; showAnswers(answers); tiles(); },
    events: showEvents,
  };
}

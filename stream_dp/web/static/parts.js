// Parts that both views have.

import { answerBar, empty, fill, h, how, percent, pill, plural, scrolling, share, spendingBar, table, when, whole, $ } from "./dom.js";
import { draw, easyByPhase, overTime, undraw } from "./charts.js";
import { showRunning } from "./tiles.js";

const STATES = { retired: "retired: its rows are erased", quarantined: "in quarantine", stopped: "stopped: nobody can serve it" };

/** The name of the data set and what it promises. */
function showHead(schema, state) {
  const promise = schema?.privacy
    ? `ε ${schema.privacy.epsilon}${schema.privacy.delta ? ` at δ ${schema.privacy.delta}` : ""} is promised to ${schema.promised_to}; ${schema.precision}; profile ${schema.profile}${kept(schema.kept_phases)}${stored(schema.kept_answers_days)}`
    : "";
  fill($("head"), schema ? [h("h1", {}, schema.name), STATES[state] ? pill(STATES[state], "bad") : null, h("p", {}, promise), schema.counting ? h("p", {}, `A person: ${schema.counting}.`) : null, schema.version > 1 ? h("p", {}, `Its attributes are version ${whole(schema.version)}, which counts from phase ${whole(schema.first_phase)} on.`) : null, schema.opening ? h("p", {}, opens(schema.opening, schema.counting)) : null] : h("h1", {}, "No data set yet"));
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
  const bars = answers.map((answer) => answer.widest ?? null).filter((bar) => bar !== null).sort((a, b) => a - b);
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
              h("td", { class: "tight roomy muted", title: dated ? `opened ${when(phase.opened).textContent ?? ""}${phase.until ? `, from ${phase.since} until ${phase.until}` : ""}` : null }, dated ? phase.since ?? "" : when(phase.opened)),
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

/** The latest answers, newest first; with the questions where those are known. */
function showAnswers(answers) {
  const questions = answers.some((answer) => answer.question) ? answers.map((answer) => answer.question ?? "") : null;
  const first = known.size === 0;
  const rows = answers.map((answer, index) => {
    const name = `${answer.analyst} ${answer.query_id}`;
    const fresh = !known.has(name) && !first;
    known.add(name);
    const isDrawn = answer.value !== undefined && answer.value !== null;
    const refused = answer.status === "refused";
    const cost = answer.privacy_loss?.share;
    return h(
      "tr",
      { class: fresh ? "fresh" : "" },
      h("td", { class: "tight roomy muted" }, when(answer.at)),
      h("td", { class: "tight roomy", title: answer.query_id }, answer.analyst.slice(0, 24)),
      questions ? h("td", { class: "words code" }, questions[index] ?? "") : null,
      h("td", { class: refused ? "words refused" : isDrawn ? "tight" : "words", colspan: refused ? 4 : isDrawn ? null : 2 }, answer.said),
      refused ? null : [
        isDrawn ? h("td", { class: questions ? "narrow roomy" : "broad roomy" }, answerBar(answer.value, answer.error_bar)) : null,
        h("td", { class: "tight" }, how([answer.difficulty, answer.path])),
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

function showEvents(events) {
  const lines = events.map((event) => h("li", {}, when(event.at), h("span", {}, event.said)));
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
    running: showRunning,
  };
}

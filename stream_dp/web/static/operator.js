// The operator's view: everything that is public, and the health of this worker.

import { empty, fill, h, percent, pill, plural, scrolling, share, spendingBar, table, when, whole, $ } from "./dom.js";
import { quoted } from "./completion.js";
import { follow, keepDataset, send } from "./live.js";
import { sharedParts } from "./parts.js";

const MOST_MARGINALS = 6;
const MOST_SHARES = 100;
const parts = sharedParts();
let [schema, phases, waiting, stuck, stopped, listed, away] = [null, -1, {}, {}, {}, [], ""];

/** This worker knows of its own data sets what nothing that is published tells: the end of a quarantine. */
function stateOf({ name, state }) {
  if (state !== "retired" && name in stopped) return "stopped";
  if (state === "retired" || !(name in waiting)) return state;
  return name in stuck ? "quarantined" : "live";
}

function showDatasets() {
  const rows = listed.map((one) => {
    const state = stateOf(one);
    const wait = waiting[one.name] ?? one.waiting;
    const asked = one.easy + one.hard;
    return h(
      "tr",
      {},
      h(
        "th",
        { scope: "row", class: "words" },
        h("a", { href: `?dataset=${encodeURIComponent(one.name)}`, "aria-current": one.name === schema?.name ? "true" : null, "data-key": one.name }, one.name),
        state === "live" ? null : [" ", pill(state, "bad")],
      ),
      h("td", { class: "number tight" }, whole(one.phases)),
      h("td", { class: "number tight" }, whole(one.rows)),
      h("td", { class: "number tight roomy" }, wait === null || !one.opens_at ? "–" : `${whole(wait)} of ${whole(one.opens_at)}`),
      h("td", { class: "broad roomy" }, spendingBar(one.spent)),
      h("td", { class: "number tight" }, share(one.spent)),
      h("td", { class: "number tight roomy" }, asked ? share(one.easy / asked, 0) : "–"),
    );
  });
  fill(
    $("datasets"),
    rows.length
      ? scrolling("Data sets", table(
          "Data sets",
          [["name", "named"], ["phases", "number tight"], ["rows", "number tight"], ["rows waiting", "number tight roomy"], ["", "broad roomy"], ["budget spent", "number tight"], ["easy", "number tight roomy"]],
          rows,
        ))
      : empty("There is no data set yet. Create one with: stream-dp dataset create DEFINITION.json"),
  );
}

// ---------------------------------------------------------------- shares

/** What is allowed, in a few words. */
function allowed({ who, entry, share: part, kept, owner }) {
  if (who === "the rest") return `${percent(kept)}, kept for nobody`;
  if (who === "the owner") return kept === undefined ? "what is kept for nobody" : percent(kept);
  if (entry === undefined) return "may not ask any more";
  if (owner) return "as the owner";
  const each = part === undefined ? "" : `${percent(part)}${who.endsWith("*") ? " each" : ""}`;
  if (kept === undefined || !who.endsWith("*")) return each || "what is kept for nobody";
  return `${each}${each ? ", " : ""}${percent(kept)} together`;
}

/** A bar for what was spent of what could have been, and what is left. */
const leftOf = (at) =>
  at
    ? [h("td", { class: "narrow roomy", title: `${share(at.spent)} spent of phase ${at.phase}` }, spendingBar(at.left ? at.spent / (at.spent + at.left) : 1)), h("td", { class: "number tight" }, share(at.left))]
    : [h("td", { class: "roomy" }), h("td", {})];

function showShares(shares) {
  $("shares-card").hidden = !shares.length;
  const shown = shares.slice(0, MOST_SHARES);
  const rows = shown.map((one) =>
    h(
      "tr",
      {},
      h("th", { scope: "row", class: `words who ${one.entry && one.entry !== one.who ? "beneath" : ""}` }, one.who),
      h("td", {}, allowed(one)),
      leftOf(one.newest),
      h("td", { class: "number tight roomy" }, one.worst ? one.worst.phase : ""),
      leftOf(one.worst),
    ),
  );
  fill(
    $("shares"),
    scrolling("Shares of analysts", table(
      "What each may charge, has spent of the newest phase, and has left of it and of the phase of which least is left",
      [["who", "named"], ["of each phase", ""], ["newest phase", "narrow roomy"], ["left", "number tight"], ["phase", "number tight roomy"], ["with least left", "narrow roomy"], ["left", "number tight"]],
      rows,
    )),
    shares.length > shown.length ? empty(`${whole(shares.length - shown.length)} more: stream-dp budget`) : null,
  );
}

// ---------------------------------------------------------------- prices

function questions() {
  const names = schema.attributes.map((attribute) => attribute.name);
  const marginals = names.slice(0, MOST_MARGINALS).map((name) => [name]);
  const larger = [2, 3].filter((size) => size <= names.length).map((size) => names.slice(0, size));
  return [["every row", "SELECT COUNT(*)"], ...[...marginals, ...larger].map((group) => [`GROUP BY ${group.join(", ")}`, `SELECT COUNT(*) GROUP BY ${group.map(quoted).join(", ")}`])];
}

let round = 0;

async function showPrices() {
  const mine = ++round;
  if (!schema?.attributes.length || phases < 1) {
    fill($("prices"), empty("You cannot ask anything before a phase is open."));
    return;
  }
  $("quote").disabled = true;
  const rows = [];
  for (const [words, sql] of questions()) {
    const quote = await send("/question", { dataset: schema.name, sql, quote: true });
    if (mine !== round) return;
    if (quote.error) {
      $("quote").disabled = false;
      fill($("prices"), h("p", { class: "refused" }, quote.error.message));
      return;
    }
    rows.push(
      h(
        "tr",
        {},
        h("th", { scope: "row", class: "words" }, words),
        quote.refused ? h("td", { colspan: 2, class: "refused" }, quote.refused) : [h("td", { class: "number tight" }, quote.price), h("td", {}, quote.path)],
      ),
    );
  }
  $("quote").disabled = false;
  fill($("prices"), table("Prices now, as shares of the budget of a phase", [["question", ""], ["price", "number tight"], ["how", "tight"]], rows));
}

$("quote").addEventListener("click", showPrices);

// ---------------------------------------------------------------- health

function showHealth(health) {
  const waits = Object.keys(health.away).filter((name) => name !== "Redis"); // Redis may be away for ever
  const since = (name) => [pill("does not answer", "bad"), " since ", when(health.away[name])];
  const places = Object.entries(health.quarantined);
  const halted = Object.entries(health.stopped);
  const deleted = Object.entries(health.deleted);
  const fact = (name, ...value) => [h("dt", {}, name), h("dd", {}, ...value)];
  fill(
    $("health"),
    h(
      "dl",
      { class: "facts" },
      fact("Worker", waits.length ? pill(`waits for ${waits.join(" and ")}`, "bad") : health.ready ? pill("answers", "easy") : pill("starting", "hard")),
      fact("Kafka", health.away.Kafka ? since("Kafka") : pill("answers", "easy")),
      fact("Redis", health.away.Redis ? [...since("Redis"), "; answers to repeated queries are read from the topics"] : pill("answers", "easy")),
      fact("Partitions", health.partitions.length ? health.partitions.join(", ") : "none"),
      fact("Records behind", health.away.Kafka ? "not known" : whole(health.behind)),
      fact("Quarantine", places.length ? places.map(([name, place]) => h("p", {}, pill(name, "bad"), ` at ${place}`)) : "empty"),
      halted.length ? fact("Stopped", halted.map(([name, reason]) => h("p", {}, pill(name, "bad"), ` ${reason}`))) : null,
      deleted.length ? fact("Deleted unread", deleted.map(([place, records]) => h("p", { class: "refused" }, `${plural(records, "record")} of ${place}`))) : null,
    ),
  );
}

function showRejected(rejected) {
  const lines = rejected.map((one) => h("li", {}, when(one.at), h("span", {}, one.said)));
  fill($("rejected"), lines.length ? h("ul", { class: "log" }, lines) : empty("None lately."));
}

follow("operator", {
  ...parts,
  reading(now) {
    const gone = Object.keys(now.away).join();
    if (away && !gone) showPrices();
    away = gone;
  },
  datasets(datasets) { listed = datasets; showDatasets(); },
  schema(now) {
    schema = now;
    parts.schema(now);
    if (now) keepDataset(now.name);
    showDatasets();
  },
  dataset(dataset) {
    if (dataset && dataset.name in waiting) dataset.waiting = waiting[dataset.name];
    parts.dataset(dataset);
    showShares(dataset?.shares ?? []);
    if ((dataset?.phases ?? 0) !== phases) {
      phases = dataset?.phases ?? 0;
      showPrices();
    }
  },
  health(health) { [waiting, stuck, stopped] = [health.waiting, health.quarantined, health.stopped]; showHealth(health); showDatasets(); },
  rejected: showRejected,
});

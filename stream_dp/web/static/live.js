// Live updates from the worker, and requests to it.

import { fill, h, when, $ } from "./dom.js";

const RETRY_MS = 5000;
const SILENT_MS = 15000; // the worker sends a sign of life every five seconds

export const chosen = new URLSearchParams(location.search).get("dataset") ?? "";

// The effect of a server that does not answer, for everybody, and what to do, for operators.
const AWAY = {
  Kafka: [
    "This page shows the state at that time. Nothing is lost, but nothing can be sent at the moment. Senders get an error.",
    "Start the broker again. See stream-dp doctor for details.",
  ],
  "This worker": [
    "This page shows the state at that time. Nothing is lost: sent records wait in Kafka.",
    "If it does not restart by itself, start it again with stream-dp up or stream-dp worker. The end of its log says why it stopped.",
  ],
};

/** Says above everything else what does not answer; `away` has since when. */
function tell(view, away) {
  const entries = Object.entries(away);
  $("notice").hidden = !entries.length;
  fill(
    $("notice"),
    entries.map(([name, since]) => {
      const [meaning, remedy] = AWAY[name];
      return h("p", {}, h("strong", {}, `${name} does not answer`), " since ", when(since), `. ${meaning} ${view === "operator" ? `${remedy} ` : ""}This page continues by itself.`);
    }),
  );
}

/** Calls `on[name](document)` whenever the document of that name changes. */
export function follow(view, on) {
  const status = $("reading");
  let [source, heard, told, now] = [null, Date.now(), "", { away: {} }];
  function show(away) {
    const kind = Object.keys(away).length || now.problem ? "bad" : now.caught_up ? "good" : "";
    const text = Object.keys(away).length
      ? `${Object.keys(away).join(" and ")} away`
      : now.problem || (!now.caught_up ? "reading the published records" : now.sample ? "live; a sample of the answers" : "live");
    status.className = `status ${kind}`;
    $("main").classList.toggle("stale", !now.caught_up || Boolean(now.problem) || Object.keys(away).length > 0);
    if (told === text + JSON.stringify(away)) return;
    told = text + JSON.stringify(away);
    status.textContent = text;
    tell(view, away);
  }
  const lost = () => show({ "This worker": heard });
  const listeners = {
    here() {},
    ...on,
    reading(document) {
      now = document;
      on.reading?.(now);
    },
  };
  // By then the page may need another token or another release.
  const again = () => fetch("/healthz").then(() => location.reload(), () => setTimeout(again, RETRY_MS));
  const open = () => {
    heard = Date.now();
    source = new EventSource(`/stream/${view}?dataset=${encodeURIComponent(chosen)}`);
    source.addEventListener("error", () => {
      lost();
      if (source.readyState === EventSource.CLOSED) setTimeout(again, RETRY_MS);
    });
    for (const [name, take] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => {
        heard = Date.now();
        take(JSON.parse(event.data));
        show(now.away);
      });
    }
  };
  setInterval(() => { if (!document.hidden && Date.now() - heard > SILENT_MS) lost(); }, 1000);
  // Nobody sees a hidden page, and a browser has few connections to one server.
  document.addEventListener("visibilitychange", () => {
    source?.close();
    if (!document.hidden) open();
  });
  open();
}

/** Keeps the chosen data set when somebody changes to the other view. */
export function keepDataset(name) {
  for (const link of document.querySelectorAll("[data-keeps-dataset]")) {
    const target = new URL(link.href);
    target.searchParams.set("dataset", name);
    link.href = target.pathname + target.search;
  }
}

/** Sends a JSON document; what comes back, or `{error: {message}}`. */
export async function send(path, body) {
  try {
    const reply = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    return reply.ok ? await reply.json() : { error: { message: await reply.text() } };
  } catch {
    return { error: { message: "the worker does not answer" } };
  }
}

// What the worker tells as it happens, and asking it.

import { $ } from "./dom.js";

const RETRY_MS = 5000;

export const chosen = new URLSearchParams(location.search).get("dataset") ?? "";

/** Calls `on[name](document)` whenever the document of that name changes. */
export function follow(view, on) {
  const status = $("reading");
  const say = (text, kind = "") => {
    if (status.textContent !== text) status.textContent = text;
    status.className = `status ${kind}`;
  };
  const listeners = {
    ...on,
    reading(now) {
      if (now.problem) say(now.problem, "bad");
      else if (!now.caught_up) say("reading what was published");
      else say(now.sample ? "live; of the many answers a sample" : "live", "good");
      on.reading?.(now);
    },
  };
  let source;
  const open = () => {
    source = new EventSource(`/stream/${view}?dataset=${encodeURIComponent(chosen)}`);
    source.addEventListener("error", () => {
      say("the worker does not answer", "bad");
      if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), RETRY_MS);
    });
    for (const [name, take] of Object.entries(listeners)) {
      source.addEventListener(name, (event) => take(JSON.parse(event.data)));
    }
  };
  // Nobody looks at a hidden page, and a browser has few connections to one server.
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

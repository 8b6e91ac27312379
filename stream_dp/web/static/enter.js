// Exchanges a token for a cookie. A token in the fragment of the address was never sent to any server.

import { $ } from "./dom.js";
import { send } from "./live.js";

async function enter(token, how = {}) {
  const reply = await send("/enter", { token, ...how });
  $("says").textContent = reply.role ? "" : reply.error.message;
  return reply;
}

$("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const { role } = await enter($("token").value);
  if (role) location.replace(role === "operator" ? location.pathname : "/ask");
});

// Anyone can send a link with a token of theirs, so it logs nobody in by itself.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  const { role, name } = await enter(token, { look: true });
  if (role) {
    $("token").value = token;
    $("who").textContent = `This link enters as ${name ? `the analyst ${name}` : `an ${role}`}. Enter only if that is you.`;
    $("enter").focus();
  }
}

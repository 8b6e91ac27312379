// Exchanges a token for a cookie. A token in the fragment of the address was never sent to any server.

import { $ } from "./dom.js";
import { send } from "./live.js";

async function enter(token) {
  const reply = await send("/enter", { token });
  if (reply.role) location.replace(reply.role === "operator" ? location.pathname : "/ask");
  else $("says").textContent = reply.error.message;
}

const token = new URLSearchParams(location.hash.slice(1)).get("token");
if (token) {
  history.replaceState(null, "", location.pathname + location.search);
  enter(token);
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  enter($("token").value);
});

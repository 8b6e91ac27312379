// Elements and figures. Text is never set as HTML, because names and labels come from users.

const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function make(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an element. A property is an attribute, a listener such as `onclick`, or a custom property `--x`. */
export const h = (tag, properties = {}, ...children) => make(document.createElement(tag), properties, children);

/** The same for a drawing. */
export const s = (tag, properties = {}, ...children) => make(document.createElementNS(SVG, tag), properties, children);

/** A part that scrolls by itself, also by keyboard. */
export const scrolling = (label, ...children) =>
  h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label, "data-key": label }, ...children);

/** Puts new children in place of the old ones; focus and scrolling stay where they were. */
export function fill(place, ...children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  const scrolled = place.querySelector(".scroll")?.scrollTop;
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (scrolled) place.querySelector(".scroll")?.scrollTo(0, scrolled);
  if (key !== undefined) [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key)?.focus({ preventScroll: true });
}

export const whole = (number) => new Intl.NumberFormat("en").format(number);

/** A share as a percentage that never shows something as nothing. */
export function share(part, digits = 2) {
  if (part > 0 && part < 0.5 * 10 ** (-digits - 2)) return `<${(10 ** -digits).toFixed(digits)}%`;
  return `${(100 * part).toFixed(digits)}%`;
}

/** A difference of shares, always with its sign. */
const signed = (value) => `${value < 0 ? "−" : "+"}${share(Math.abs(value))}`;

/** A percentage that somebody chose, without zeros at its end. */
export const percent = (part) => `${+(100 * part).toPrecision(4)}%`;

/** Writes the round numbers of an axis. Those of answers come in words from the server. */
export const tick = (unit) => ({ share: (value) => share(value), points: signed })[unit] ?? ((value) => new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(value));

const SAME_DAY = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const OTHER_DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** The time of day, with the day unless it is today. */
export function clock(ms) {
  const then = new Date(ms);
  return (then.toDateString() === new Date().toDateString() ? SAME_DAY : OTHER_DAY).format(then);
}

export const when = (ms) => h("time", { datetime: new Date(ms).toISOString() }, clock(ms));

/** A bar for a share of a budget. */
export function spendingBar(part) {
  const level = part >= 0.9 ? "over" : part >= 0.5 ? "late" : "";
  return h("span", { class: `meter ${part > 0 ? "spent" : ""} ${level}`, "aria-hidden": "true", "--share": Math.min(1, part) }, h("i"));
}

/** A bar for an answer, with the zone of its error bar. */
export function answerBar(value, error) {
  const low = Math.max(0, value - (error ?? 0));
  const high = Math.min(1, value + (error ?? 0));
  return h(
    "span",
    { class: "meter", "aria-hidden": "true", "--share": value, "--low": low, "--width": high - low },
    h("i"),
    error ? h("b") : null,
  );
}

export const pill = (text, kind = "") => h("span", { class: `pill ${kind}` }, text);

/** How an answer came about. */
export const how = ([difficulty, path]) => pill(`${difficulty}, ${path}`, path === "unverified" ? "bad" : difficulty);

/** A table; columns are [heading, class of its cells]. */
export function table(caption, columns, rows) {
  return h(
    "table",
    {},
    h("caption", { class: "unseen" }, caption),
    h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
    h("tbody", {}, rows),
  );
}

export const empty = (text) => h("p", { class: "empty" }, text);

export const plural = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

// Draws charts as SVG for the current width, and draws them again when it changes.

import { clock, percent, s, share, whole } from "./dom.js";

const watched = new WeakMap();
const observer = new ResizeObserver((entries) => {
  for (const { target } of entries) redraw(target);
});

function redraw(place) {
  const width = Math.floor(place.clientWidth);
  const known = watched.get(place);
  if (!known || width < 1 || known.width === width) return;
  known.width = width;
  place.replaceChildren(known.make(width));
}

/** Keeps a drawing in `place`; `make(width)` returns its svg. */
export function draw(place, make) {
  if (!watched.has(place)) observer.observe(place);
  watched.set(place, { make, width: 0 });
  redraw(place);
}

/** Leaves words where a drawing could be. */
export function undraw(place, ...children) {
  observer.unobserve(place);
  watched.delete(place);
  place.replaceChildren(...children);
}

const picture = (width, height, label, ...children) =>
  s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, ...children);

/** The least round number that holds `most`, and a round step. */
function scale(most) {
  const steps = [0.00001, 0.0001, 0.001, 0.01, 0.1, 1].flatMap((power) => [1, 2, 5].map((lead) => lead * power));
  const step = steps.find((one) => most / one <= 4) ?? 1;
  return { top: Math.max(step, Math.ceil(most / step - 1e-9) * step), step };
}

function yAxis(low, high, step, y, left, right) {
  const lines = [];
  for (let value = low; value <= high + step / 2; value += step) {
    lines.push(
      s("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, percent(value)),
    );
  }
  return lines;
}

/** A share that grows with time, as steps; phases are marked where they opened. */
export function overTime(points, phases) {
  const latest = points.at(-1)[1];
  return (width) => {
    const [left, right, top, bottom, height] = [46, width - 4, 10, 132, 158];
    const first = points[0][0];
    const last = first + Math.max(1, 1.03 * (points.at(-1)[0] - first));
    const axis = scale(Math.max(...points.map(([, part]) => part), 1e-5));
    const x = (ms) => left + ((ms - first) / (last - first)) * (right - left);
    const y = (part) => bottom - (part / axis.top) * (bottom - top);
    let path = `M${x(first)},${y(points[0][1])}`;
    for (const [ms, part] of points.slice(1)) path += `H${x(ms).toFixed(1)}V${y(part).toFixed(1)}`;
    return picture(
      width,
      height,
      `Spent of the budget: ${share(points[0][1])} at ${clock(first)}, ${share(latest)} at ${clock(last)}`,
      yAxis(0, axis.top, axis.step, y, left, right),
      s("path", { class: "under", d: `${path}V${y(0)}H${x(first)}Z` }),
      s("path", { class: "line", d: path }),
      phases.filter((phase) => phase.opened >= first).map((phase) =>
        s("line", { class: "error", x1: x(phase.opened), x2: x(phase.opened), y1: bottom, y2: bottom + 4 },
          s("title", {}, `phase ${phase.phase} opened at ${clock(phase.opened)}`)),
      ),
      s("text", { x: left, y: height - 6 }, clock(first)),
      s("text", { x: right, y: height - 6, "text-anchor": "end" }, clock(last)),
    );
  };
}

/** Easy and hard answers of each phase as shares of a column. */
export function easyByPhase(phases) {
  const words = phases.filter(({ easy, hard }) => easy + hard).map(({ phase, easy, hard }) => `phase ${phase}: ${share(easy / (easy + hard), 0)} of ${easy + hard}`);
  return (width) => {
    const [left, top, bottom, height] = [46, 8, 104, 126];
    const pitch = Math.min(56, (width - left) / phases.length);
    const bar = Math.max(2, pitch * 0.68);
    const every = Math.ceil(22 / pitch);
    const y = (part) => bottom - part * (bottom - top);
    return picture(
      width,
      height,
      `Easy answers: ${words.join("; ")}`,
      yAxis(0, 1, 0.5, y, left, width),
      phases.map(({ phase, easy, hard }, index) => {
        const x = left + index * pitch + (pitch - bar) / 2;
        const part = easy + hard ? easy / (easy + hard) : 0;
        return s(
          "g",
          {},
          s("title", {}, `phase ${phase}: ${whole(easy)} easy, ${whole(hard)} hard`),
          s("rect", { class: "track", x, y: top, width: bar, height: bottom - top, rx: 2 }),
          hard ? s("rect", { class: "hard", x, y: top, width: bar, height: y(part) - top, rx: 2 }) : null,
          easy ? s("rect", { class: "easy", x, y: y(part), width: bar, height: bottom - y(part), rx: 2 }) : null,
          index % every ? null : s("text", { x: x + bar / 2, y: height - 6, "text-anchor": "middle" }, phase),
        );
      }),
    );
  };
}

const cut = (text, room) => (text.length <= room ? text : `${text.slice(0, Math.max(1, room - 1))}…`);

/** Error bars with both their ends. */
const stroke = (x1, x2, y1, y2) => s("line", { class: "error", x1, x2, y1, y2 });
const lying = (x1, x2, y) => [stroke(x1, x2, y, y), stroke(x1, x1, y - 4, y + 4), stroke(x2, x2, y - 4, y + 4)];
const upright = (x, y1, y2) => [stroke(x, x, y1, y2), stroke(x - 4, x + 4, y1, y1), stroke(x - 4, x + 4, y2, y2)];

/** A marginal: a bar and an error bar for each cell [label, value, error or null]; `say` puts a value into words. */
export function marginal(cells, say) {
  const bar = (error) => error ?? 0;
  const said = ([label, value, error]) => `${label} ${say(value)}${error === null ? "" : ` ± ${say(error)}`}`;
  const least = Math.min(...cells.map(([, value]) => value)) < 0 ? Math.min(...cells.map(([, value, error]) => value - bar(error))) : 0;
  const most = Math.max(...cells.map(([, value, error]) => value + bar(error)), least + 1e-9, 0);
  return (width) => {
    const longest = 10 + 7.4 * Math.max(...cells.map(([label]) => label.length));
    const above = width < 480 && longest > width * 0.34;
    const left = above ? 0 : Math.min(width * 0.45, longest);
    const room = Math.floor((above ? width : left) / 7.4);
    const right = width - 14 - 7.4 * Math.max(...cells.map(([, value]) => say(value).length));
    const x = (value) => left + ((Math.max(least, value) - least) / (most - least)) * (right - left);
    const pitch = above ? 42 : 26;
    return picture(
      width,
      cells.length * pitch + 4,
      `Values with error bars: ${cells.map(said).join("; ")}`,
      cells.map((cell, index) => {
        const [label, value, error] = cell;
        const y = (index + 1) * pitch - 11;
        return s(
          "g",
          {},
          s("title", {}, said(cell)),
          s("text", above ? { class: "strong", x: 0, y: y - 12 } : { class: "strong", x: left - 8, y: y + 4, "text-anchor": "end" }, cut(label, room)),
          s("rect", { class: "mark", x: Math.min(x(0), x(value)), y: y - 7, width: Math.max(1, Math.abs(x(value) - x(0))), height: 14, rx: 2 }),
          error === null ? null : lying(x(value - error), x(value + error), y),
          s("text", { class: "strong", x: width, y: y + 4, "text-anchor": "end" }, say(value)),
        );
      }),
    );
  };
}

/** An answer on the latest 1, 2, 3... phases: [phases, share or null, error or null]. */
export function overPhases(points) {
  const known = points.filter(([, part]) => part !== null);
  return (width) => {
    const [left, right, top, bottom, height] = [52, width - 8, 10, 150, 186];
    const least = Math.min(...known.map(([, part, error]) => part - (error ?? 0)));
    const most = Math.max(...known.map(([, part, error]) => part + (error ?? 0)));
    const axis = scale((most - least) * 1.2 || 0.01);
    const low = Math.max(0, Math.floor(least / axis.step) * axis.step);
    const high = Math.max(low + axis.step, Math.ceil(most / axis.step - 1e-9) * axis.step);
    const pitch = (right - left) / points.length;
    const x = (index) => left + (index + 0.5) * pitch;
    const y = (part) => bottom - ((Math.max(low, part) - low) / (high - low)) * (bottom - top);
    return picture(
      width,
      height,
      `By number of latest phases: ${points.map(([phases, part, error]) => `${phases}: ${part === null ? "would cost" : `${share(part)}${error === null ? "" : ` give or take ${share(error)}`}`}`).join("; ")}`,
      yAxis(low, high, axis.step, y, left, right),
      points.map(([phases, part, error], index) =>
        s(
          "g",
          {},
          s("title", {}, part === null ? `latest ${phases}: not asked, it would cost` : `latest ${phases}: ${share(part)}${error === null ? "" : ` ± ${share(error)}`}`),
          part === null || error === null ? null : upright(x(index), y(part - error), y(part + error)),
          part === null ? s("text", { x: x(index), y: bottom - 6, "text-anchor": "middle" }, "–") : s("circle", { class: "dot", cx: x(index), cy: y(part), r: 4.5 }),
          s("text", { x: x(index), y: bottom + 17, "text-anchor": "middle" }, phases),
        ),
      ),
      s("text", { x: (left + right) / 2, y: height - 4, "text-anchor": "middle" }, "latest phases asked"),
    );
  };
}

/** An answer phase by phase: [phase, value or null, error or null, when]; `say` puts it into words. */
export function series(points, say, mark = percent) {
  const known = points.filter(([, value]) => value !== null);
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const least = Math.min(...known.map(([, value, error]) => value - (error ?? 0)));
  const most = Math.max(...known.map(([, value, error]) => value + (error ?? 0)));
  return (width) => {
    const [left, right, top, bottom, height] = [58, width - 10, 10, 120, 142];
    const middle = (least + most) / 2;
    const half = Math.max((most - least) * 0.55, Math.abs(middle) * 1e-3, 1e-6);
    const x = (phase) => (first === last ? (left + right) / 2 : left + 6 + ((phase - first) / (last - first)) * (right - left - 12));
    const y = (value) => bottom - ((value - middle + half) / (2 * half)) * (bottom - top);
    const line = known.map(([phase, value], index) => `${index ? "L" : "M"}${x(phase).toFixed(1)},${y(value).toFixed(1)}`).join("");
    return picture(
      width,
      height,
      `Phase by phase: ${points.map(([phase, value, error]) => `${phase}: ${value === null ? "refused" : say(value, error)}`).join("; ")}`,
      [middle - half, middle, middle + half].map((value) => [
        s("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
        s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, mark(value)),
      ]),
      s("path", { class: "line", d: line }),
      known.map(([phase, value, error, when]) =>
        s(
          "g",
          {},
          s("title", {}, `phase ${phase}, ${when}: ${say(value, error)}`),
          error === null ? null : upright(x(phase), y(value - error), y(value + error)),
          s("circle", { class: "dot", cx: x(phase), cy: y(value), r: known.length > 30 ? 2.5 : 4 }),
        ),
      ),
      s("text", { x: x(first), y: height - 6, "text-anchor": first === last ? "middle" : "start" }, `phase ${first}`),
      first === last ? null : s("text", { x: x(last), y: height - 6, "text-anchor": "end" }, `phase ${last}`),
    );
  };
}

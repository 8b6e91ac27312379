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

function yAxis(low, high, step, y, left, right, say = percent) {
  const lines = [];
  for (let value = low; value <= high + step / 2; value += step) {
    lines.push(
      s("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
      s("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, say(value)),
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

/** A marginal: a bar and an error bar for each cell [label, value, error or null, both in words]. */
export function marginal(cells) {
  const bar = (error) => error ?? 0;
  const said = ([label, , , words]) => `${label} ${words}`;
  const ends = cells.map(([, , , words]) => words.split(" ± ")[0]);
  const least = Math.min(...cells.map(([, value]) => value)) < 0 ? Math.min(...cells.map(([, value, error]) => value - bar(error))) : 0;
  const most = Math.max(...cells.map(([, value, error]) => value + bar(error)), least + 1e-9, 0);
  return (width) => {
    const longest = 10 + 7.4 * Math.max(...cells.map(([label]) => label.length));
    const above = width < 480 && longest > width * 0.34;
    const left = above ? 0 : Math.min(width * 0.45, longest);
    const room = Math.floor((above ? width : left) / 7.4);
    const right = width - 14 - 7.4 * Math.max(...ends.map((end) => end.length));
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
          s("text", { class: "strong", x: width, y: y + 4, "text-anchor": "end" }, ends[index]),
        );
      }),
    );
  };
}

/** A round step of which `range` has at most four. */
function stepOf(range) {
  const power = 10 ** Math.floor(Math.log10(range / 4));
  return [1, 2, 5, 10].map((lead) => lead * power).find((one) => range / one <= 4 + 1e-9);
}

/** A series: [period, value or null, error or null, both in words] in the order of time; `tick` writes the numbers of its axis. With `band` errors are an area. */
export function series(points, tick, band = false) {
  const known = points.filter(([, value]) => value !== null);
  const bar = (error) => error ?? 0;
  const least = Math.min(...known.map(([, value, error]) => value - bar(error)));
  const most = Math.max(...known.map(([, value, error]) => value + bar(error)));
  const step = stepOf(Math.max(1.2 * (most - least), 1e-3 * Math.abs(most), 1e-6));
  const floor = Math.min(...known.map(([, value]) => value)) < 0 ? -Infinity : 0;
  const low = Math.max(floor, Math.floor(least / step + 1e-9) * step);
  const high = Math.max(low + step, Math.ceil(most / step - 1e-9) * step);
  const said = ([period, value, , words]) => `${period}: ${value === null ? "not known" : words}`;
  return (width) => {
    const [right, top, bottom, height] = [width - 8, 10, 150, 176];
    const left = 18 + 7.4 * Math.max(tick(low).length, tick(high).length);
    const pitch = (right - left) / points.length;
    const every = Math.ceil((8 + 7.4 * Math.max(...points.map(([period]) => period.length))) / pitch);
    const x = (index) => left + (index + 0.5) * pitch;
    const y = (value) => bottom - ((Math.min(high, Math.max(low, value)) - low) / (high - low)) * (bottom - top);
    let line = "";
    points.forEach(([, value], index) => {
      if (value !== null) line += `${index && points[index - 1][1] !== null ? "L" : "M"}${x(index).toFixed(1)},${y(value).toFixed(1)}`;
    });
    const edge = (sign) => points.map(([, value, error], index) => `${x(index).toFixed(1)},${y(value + sign * error).toFixed(1)}`);
    return picture(
      width,
      height,
      `Over time: ${points.map(said).join("; ")}`,
      yAxis(low, high, step, y, left, right, tick),
      band ? s("path", { class: "under", d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z` }) : null,
      s("path", { class: "line", d: line }),
      points.map((point, index) => {
        const [period, value, error] = point;
        return s(
          "g",
          {},
          s("title", {}, said(point)),
          band || value === null || error === null ? null : upright(x(index), y(value - error), y(value + error)),
          value === null ? s("text", { x: x(index), y: bottom - 6, "text-anchor": "middle" }, "–") : s("circle", { class: "dot", cx: x(index), cy: y(value), r: Math.min(4.5, Math.max(2, pitch / 4)) }),
          index % every ? null : s("text", { x: x(index), y: bottom + 17, "text-anchor": "middle" }, period),
        );
      }),
    );
  };
}
